//! System calls for which the standard library has no words: namespaces, raw packets, mounts.
//!
//! The one file of this crate with unsafe code. Each function is a thin cover over one call or two,
//! takes and returns safe types, and names what the kernel said.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Namespaces to leave behind for new ones.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Leave {
    /// The user namespace, and with it the limits of an ordinary user.
    User,
    /// The mounts.
    Mounts,
    /// The network.
    Network,
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

fn text(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Moves the calling thread into a fresh namespace; the whole process if it has one thread.
pub(crate) fn unshare(what: Leave) -> io::Result<()> {
    let flags = match what {
        Leave::User => libc::CLONE_NEWUSER,
        Leave::Mounts => libc::CLONE_NEWNS,
        Leave::Network => libc::CLONE_NEWNET,
    };
    // SAFETY: no memory is passed; what changes is the thread's view of the system. No flag is
    // given that would unshare file descriptors or memory.
    checked(unsafe { libc::unshare(flags) }).map(drop)
}

/// Moves the calling thread into the network namespace of this descriptor.
pub(crate) fn enter_network(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is open while it is borrowed; the kernel checks that it is a network
    // namespace, and only the calling thread moves.
    checked(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

/// Has `command` end when the thread that starts it ends, and run in this network namespace.
///
/// The descriptor must stay open until the command is spawned.
pub(crate) fn confine(command: &mut Command, network: Option<RawFd>) {
    let parent = std::process::id();
    let hook = move || {
        if let Some(network) = network {
            // SAFETY: as in `enter_network`; a descriptor that is no longer open is an error.
            checked(unsafe { libc::setns(network, libc::CLONE_NEWNET) })?;
        }
        // SAFETY: these two take numbers only and touch no memory.
        checked(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })?;
        // SAFETY: takes nothing and cannot fail.
        let now = unsafe { libc::getppid() };
        // The parent may have ended before it was asked for its end.
        if now.cast_unsigned() != parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: between fork and exec the hook makes system calls only: it allocates nothing and
    // takes no lock, so nothing that another thread held at the fork can stop it.
    unsafe { command.pre_exec(hook) };
}

/// Has `command` be notified by an error that a file may not grow further, as by a disk, and not by
/// a signal that ends it.
pub(crate) fn bear_limits(command: &mut Command) {
    let hook = || {
        // SAFETY: takes numbers only; a signal that is ignored stays so in the program to come.
        let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        if before == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: between fork and exec the hook makes one system call.
    unsafe { command.pre_exec(hook) };
}

/// The index of a network device of the calling thread's namespace.
pub(crate) fn device_index(name: &str) -> io::Result<u32> {
    let name = CString::new(name)?;
    // SAFETY: the name is a live C string; the call only reads it.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// A routing netlink socket in the calling thread's network namespace.
pub(crate) fn netlink() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: takes numbers; the descriptor that is returned is owned by no other code.
    unsafe {
        let fd = checked(libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// A socket that is handed every frame arriving at a device, and sends frames out of it.
pub(crate) fn packets(device: u32) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let all = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: takes numbers; the descriptor that is returned is owned by no other code.
    let socket = unsafe {
        let fd = checked(libc::socket(libc::AF_PACKET, kind, 0))?;
        OwnedFd::from_raw_fd(fd)
    };
    let yes: libc::c_int = 1;
    option(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, yes)?;
    // The standard room is for a few hundred small frames: a burst would be lost unseen.
    option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, ROOM_BYTES)
        .or_else(|_| option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, ROOM_BYTES))?;
    // SAFETY: all bytes zero is a valid value of this plain struct.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = all;
    address.sll_ifindex = device.cast_signed();
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address is a live struct of the length that is passed.
    checked(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(socket)
}

/// How many bytes of frames may wait for the switch at each port.
const ROOM_BYTES: libc::c_int = 8 << 20;

fn option(socket: &OwnedFd, level: i32, name: i32, value: libc::c_int) -> io::Result<()> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    let value = (&raw const value).cast();
    // SAFETY: the value is a live integer of the length that is passed.
    checked(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, length) }).map(drop)
}

/// What `ethtool` calls an offload, as the number of the command that sets it.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum Offload {
    /// Checksums of what is sent.
    TxChecksum = 0x17,
    /// Cutting TCP's data into segments.
    TcpSegmentation = 0x1f,
    /// The same for anything.
    GenericSegmentation = 0x24,
    /// Joining segments that arrive.
    GenericReceive = 0x2c,
}

#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

#[repr(C)]
struct DeviceRequest {
    name: [u8; libc::IFNAMSIZ],
    data: *mut EthtoolValue,
    /// The kernel's union is larger than a pointer.
    rest: [u8; 16],
}

const SIOCETHTOOL: libc::c_ulong = 0x8946;

/// Turns an offload of a device of the calling thread's network namespace off.
pub(crate) fn offload_off(device: &str, offload: Offload) -> io::Result<()> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: takes numbers; the descriptor that is returned is owned by no other code.
    let socket = unsafe {
        let fd = checked(libc::socket(libc::AF_INET, kind, 0))?;
        OwnedFd::from_raw_fd(fd)
    };
    let mut value = EthtoolValue {
        command: offload as u32,
        data: 0,
    };
    let mut request = DeviceRequest {
        name: [0; libc::IFNAMSIZ],
        data: &raw mut value,
        rest: [0; 16],
    };
    if device.len() >= request.name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    request.name[..device.len()].copy_from_slice(device.as_bytes());
    // SAFETY: the request has the kernel's layout and size, its name ends with a zero, and it
    // points to a value that lives until the call has returned.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) })
        .map(drop)
}

/// Mounts `source` of this kind on `target`.
pub(crate) fn mount(source: &Path, target: &Path, kind: &str, options: &str) -> io::Result<()> {
    let (source, target) = (text(source)?, text(target)?);
    let (kind, options) = (CString::new(kind)?, CString::new(options)?);
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    // SAFETY: all four are live C strings, which the call only reads.
    let mounted = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            flags,
            options.as_ptr().cast(),
        )
    };
    checked(mounted).map(drop)
}

/// From here on no mount of this mount namespace reaches another one.
pub(crate) fn keep_mounts_private() -> io::Result<()> {
    let root = c"/";
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    let nothing = std::ptr::null();
    // SAFETY: the target is a C string; the kernel ignores the others with these flags.
    checked(unsafe { libc::mount(nothing, root.as_ptr(), nothing, flags, nothing.cast()) })
        .map(drop)
}

/// Takes the file system off `target`, at once or as soon as no process uses it.
pub(crate) fn unmount(target: &Path, lazily: bool) -> io::Result<()> {
    let target = text(target)?;
    let flags = if lazily { libc::MNT_DETACH } else { 0 };
    // SAFETY: the target is a live C string, which the call only reads.
    checked(unsafe { libc::umount2(target.as_ptr(), flags) }).map(drop)
}

/// `_IOR('X', 125, u32)`: stop writing to the disk at once.
const EXT4_IOC_SHUTDOWN: libc::c_ulong = 0x8004_587d;
/// Also what the journal has and the disk has not.
const WITHOUT_FLUSH: u32 = 2;

/// Cuts the power of an ext4 file system: what was not synced is gone, and every later write
/// fails. Any file of it will do.
pub(crate) fn cut_power(file: BorrowedFd<'_>) -> io::Result<()> {
    let how = WITHOUT_FLUSH;
    // SAFETY: the call reads one integer, which lives.
    checked(unsafe { libc::ioctl(file.as_raw_fd(), EXT4_IOC_SHUTDOWN as _, &raw const how) })
        .map(drop)
}

const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4c82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4c0a;
/// The device is free again when nothing is mounted from it any more.
const LO_FLAGS_AUTOCLEAR: u32 = 4;

#[repr(C)]
struct LoopConfig {
    file: u32,
    block_size: u32,
    /// `struct loop_info64`; its flags stand behind 52 bytes.
    info: [u8; 232],
    reserved: [u64; 8],
}

const FLAGS_AT: usize = 52;

/// The number of a loop device that no process uses now.
pub(crate) fn free_loop_device(control: BorrowedFd<'_>) -> io::Result<i32> {
    // SAFETY: takes no argument and returns a number.
    checked(unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) })
}

/// Makes a loop device show this file until it is mounted nowhere any more.
pub(crate) fn attach_loop(device: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<()> {
    let mut config = LoopConfig {
        file: file.as_raw_fd().cast_unsigned(),
        block_size: 0,
        info: [0; 232],
        reserved: [0; 8],
    };
    config.info[FLAGS_AT..FLAGS_AT + 4].copy_from_slice(&LO_FLAGS_AUTOCLEAR.to_ne_bytes());
    // SAFETY: the struct has the kernel's layout and size and lives until the call has returned.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, &raw const config) })
        .map(drop)
}

static INTERRUPTED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

extern "C" fn note_interrupt(_: libc::c_int) {
    INTERRUPTED.store(true, std::sync::atomic::Ordering::Relaxed);
}

/// From here on SIGINT, SIGTERM and SIGHUP are noted instead of ending the process, which then has
/// to look.
pub(crate) fn catch_interrupts() {
    let handler = note_interrupt as extern "C" fn(libc::c_int);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores to an atomic, which a handler may do at any moment.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// Whether one of them has come.
pub(crate) fn interrupted() -> bool {
    INTERRUPTED.load(std::sync::atomic::Ordering::Relaxed)
}
