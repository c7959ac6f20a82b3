//! What the log asks of the operating system and each answers in its own way.

pub(crate) use this::{drop_cache, physical_sector, sync_content, sync_names};

#[cfg(target_os = "linux")]
mod this {
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::MetadataExt;
    use std::path::{Path, PathBuf};

    use rustix::fs::{Advice, fadvise, major, minor};

    pub(crate) fn sync_content(file: &File) -> io::Result<()> {
        file.sync_data()
    }

    pub(crate) fn sync_names(dir: &File) -> io::Result<()> {
        dir.sync_all()
    }

    pub(crate) fn drop_cache(file: &File) -> io::Result<()> {
        Ok(fadvise(file, 0, None, Advice::DontNeed)?)
    }

    /// The physical sector of the device under `dir`, in bytes, if the system says so. A file system
    /// without a device of its own, such as an overlay, has none.
    pub(crate) fn physical_sector(dir: &Path) -> Option<u64> {
        let device = std::fs::metadata(dir).ok()?.dev();
        let block = format!("/sys/dev/block/{}:{}", major(device), minor(device));
        // A partition has no queue of its own; that of its disk is beside it.
        let queues = ["queue", "../queue"].map(|queue| Path::new(&block).join(queue));
        let read =
            |queue: &PathBuf| std::fs::read_to_string(queue.join("physical_block_size")).ok();
        queues.iter().find_map(read)?.trim().parse().ok()
    }
}

/// Apple's `fsync` leaves data in the drive's own cache, which a power loss empties; `F_FULLFSYNC`
/// does not. The standard library uses it too today, but does not promise it.
#[cfg(target_vendor = "apple")]
mod this {
    use std::fs::File;
    use std::io;
    use std::path::Path;

    use rustix::fs::fcntl_fullfsync;
    use rustix::io::retry_on_intr;

    pub(crate) fn sync_content(file: &File) -> io::Result<()> {
        Ok(retry_on_intr(|| fcntl_fullfsync(file))?)
    }

    pub(crate) fn sync_names(dir: &File) -> io::Result<()> {
        Ok(retry_on_intr(|| fcntl_fullfsync(dir))?)
    }

    /// No call drops the pages of a file here. A log that was opened after a failed sync may
    /// therefore show content that only the cache has.
    pub(crate) fn drop_cache(_file: &File) -> io::Result<()> {
        Ok(())
    }

    /// Unknown: a page, 16 KiB on Apple's own processors, is no smaller than the sectors of their
    /// drives.
    pub(crate) fn physical_sector(_dir: &Path) -> Option<u64> {
        None
    }
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
compile_error!("it is not known here how the log is synced to the drive");
