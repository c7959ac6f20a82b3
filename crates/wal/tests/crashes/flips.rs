//! Damage: flipped bytes, files gone, bytes of an earlier life.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_wal::sim::{Crash, SimFs};
use ringfence_wal::{EntryId, Fs, OpenError, Options, Writer};

use crate::model::{BLOCK, SEGMENT_BYTES, State, Subject, dir, disk, open, options};

fn segment(number: u64) -> PathBuf {
    PathBuf::from(format!("/log/{number:016x}.wal"))
}

/// A small log: votes and entries, one batch each, in `segments` segments. Returns the state
/// before the last batch, and after it.
fn small_log(fs: &SimFs, entry_bytes: usize, entries: u64, sealed: bool) -> (State, State) {
    let mut subject = Subject::new(fs);
    subject.vote(b"a vote");
    subject.flush();
    for i in 0..entries {
        subject.append(1, vec![vec![i as u8; entry_bytes]]);
        subject.flush();
    }
    let before = subject.state.clone();
    subject.append(2, vec![vec![0xEE; 700]]);
    subject.flush();
    assert_eq!(subject.acknowledged(), subject.ops.len());
    let after = subject.state.clone();
    if sealed {
        subject.close();
    }
    (before, after)
}

/// Flips every `stride`-th byte of every file in turn; returns how many flips were refused, how
/// many left everything as it was, and at which bytes the last batch was cut.
fn flip_each(fs: &SimFs, before: &State, after: &State, stride: usize) -> (u64, u64, Vec<u64>) {
    let (mut refused, mut unharmed, mut cut) = (0, 0, Vec::new());
    for path in fs.paths() {
        let len = fs.content(&path).unwrap().len();
        for offset in (0..len).step_by(stride) {
            let copy = fs.fork();
            copy.crash(Crash::ProcessOnly);
            assert!(copy.flip(&path, offset as u64, 1 << (offset % 8)));
            match open(&copy) {
                Err(OpenError::Damaged(damage)) => {
                    assert_eq!(damage.path, path, "{damage}");
                    refused += 1;
                }
                Err(other) => panic!("byte {offset} of {}: {other}", path.display()),
                Ok((_, recovered)) if State::of(&recovered) == *after => unharmed += 1,
                Ok((_, recovered)) => {
                    assert_eq!(
                        State::of(&recovered),
                        *before,
                        "silently different: {offset}"
                    );
                    assert!(recovered.truncated_tail_bytes > 0, "silently cut: {offset}");
                    cut.push(offset as u64);
                }
            }
        }
    }
    (refused, unharmed, cut)
}

/// Odd, so that every bit of a byte has its turn.
const STRIDE: usize = 5;

/// How many flips [`flip_each`] makes in these bytes.
fn flips(bytes: std::ops::Range<u64>) -> u64 {
    bytes.filter(|at| at.is_multiple_of(STRIDE as u64)).count() as u64
}

#[test]
fn each_flipped_byte_of_a_closed_log_is_refused_or_harmless() {
    let fs = disk();
    let (before, after) = small_log(&fs, 300, 3, true);

    let (refused, unharmed, cut) = flip_each(&fs, &before, &after, STRIDE);

    // The header, the opening's checkpoint, the vote, three entries, and the last.
    assert_eq!(refused, flips(0..512) + flips(BLOCK..7 * BLOCK));
    assert_eq!(cut, Vec::<u64>::new());
    // The zeros behind the header, and the seal: that is cut, and nothing is lost by it.
    assert_eq!(
        unharmed,
        flips(512..BLOCK) + flips(7 * BLOCK..SEGMENT_BYTES)
    );
}

#[test]
fn only_a_flip_in_the_last_batch_before_a_crash_is_taken_for_a_torn_tail() {
    let fs = disk();
    let (before, after) = small_log(&fs, 300, 3, false);

    let (refused, _, cut) = flip_each(&fs, &before, &after, STRIDE);

    assert_eq!(refused, flips(0..512) + flips(BLOCK..6 * BLOCK));
    let last_batch = 6 * BLOCK..7 * BLOCK;
    assert_eq!(cut.len() as u64, flips(last_batch.clone()));
    assert!(cut.iter().all(|at| last_batch.contains(at)), "{cut:?}");
}

#[test]
fn a_flip_in_an_older_segment_is_refused() {
    let fs = disk();
    let (before, after) = small_log(&fs, 5000, 9, true);
    assert!(
        fs.paths().contains(&segment(3)),
        "three segments: {:?}",
        fs.paths()
    );

    let (refused, unharmed, cut) = flip_each(&fs, &before, &after, 13);

    assert!(refused > 2500, "{refused}");
    assert_eq!(cut, Vec::<u64>::new());
    assert!(unharmed > 0);
}

#[test]
fn damage_is_not_taken_for_a_torn_tail_when_a_torn_batch_follows() {
    let fs = disk();
    let mut subject = Subject::new(&fs);
    let batch = fs
        .content(&segment(1))
        .unwrap()
        .iter()
        .rposition(|byte| *byte != 0)
        .unwrap();
    let batch = (batch as u64).next_multiple_of(BLOCK);
    subject.append(1, vec![vec![1; 600]]);
    subject.flush();
    // All that survived of the next batch is one sector of its middle.
    let junk = batch + BLOCK + 512;
    fs.open(&segment(1))
        .unwrap()
        .write_at(&[5; 100], junk)
        .unwrap();
    drop(subject);

    let torn = fs.fork();
    assert_eq!(
        open(&torn).unwrap().1.entries.len(),
        1,
        "the acknowledged batch is whole"
    );

    assert!(fs.flip(&segment(1), batch + 100, 1));
    let text = open(&fs).err().unwrap().to_string();
    assert!(
        text.contains(&format!("byte {batch}: unreadable, though something")),
        "{text}"
    );
}

#[test]
fn a_full_segment_that_was_damaged_is_refused_when_a_torn_one_follows() {
    let fs = disk();
    let mut subject = Subject::new(&fs);
    for _ in 0..3 {
        subject.append(1, vec![vec![1; 5000]]);
        subject.flush();
    }
    let full = fs.fork();
    subject.append(1, vec![vec![1; 5000]]);
    subject.flush();
    let last = full
        .content(&segment(1))
        .unwrap()
        .iter()
        .rposition(|b| *b != 0)
        .unwrap();
    // The head of the batch that opened the second segment never reached the medium.
    fs.open(&segment(2))
        .unwrap()
        .write_at(&[0; 512], BLOCK)
        .unwrap();
    drop(subject);

    assert_eq!(
        open(&fs.fork()).unwrap().1.entries.len(),
        3,
        "cut, and no more than that"
    );

    assert!(fs.flip(&segment(1), last as u64, 1));
    let text = open(&fs).err().unwrap().to_string();
    assert!(
        text.contains("more was written to /log/0000000000000002.wal"),
        "{text}"
    );
}

#[test]
fn damage_names_the_file_the_byte_and_what_to_do() {
    let fs = disk();
    small_log(&fs, 300, 3, true);
    assert!(fs.flip(&segment(1), BLOCK * 3 + 40, 1));

    let text = open(&fs).err().unwrap().to_string();

    assert!(
        text.contains("0000000000000001.wal is damaged at byte 12288"),
        "{text}"
    );
    assert!(text.contains("remove the member"), "{text}");
}

#[test]
fn a_missing_segment_is_refused() {
    let fs = disk();
    small_log(&fs, 5000, 9, true);

    for (gone, found) in [(1, "entries 0 to"), (2, "the file is missing")] {
        let copy = fs.fork();
        copy.remove(&segment(gone)).unwrap();
        let text = open(&copy).err().unwrap().to_string();
        assert!(text.contains(found), "{text}");
    }
}

/// A log that must be there and whose every written segment is gone is not a new one.
#[test]
fn a_log_that_must_be_there_is_refused_without_its_first_batch() {
    let must_exist = |fs: &SimFs| {
        let options = Options {
            existing: true,
            ..options(&Arc::default())
        };
        Writer::open(Arc::new(fs.clone()), &dir(), options).map(|(_, recovered)| recovered)
    };
    let fs = disk();
    let (_, state) = small_log(&fs, 300, 3, true);
    assert_eq!(State::of(&must_exist(&fs.fork()).unwrap()), state);

    let emptied = fs.fork();
    emptied.empty_dir(&dir());
    let never_written = disk();
    let first_gone = fs.fork();
    first_gone.remove(&segment(1)).unwrap();
    let zeroed = fs.fork();
    let zeros = vec![0; (SEGMENT_BYTES - BLOCK) as usize];
    let file = zeroed.open(&segment(1)).unwrap();
    file.write_at(&zeros, BLOCK).unwrap();
    file.sync_data().unwrap();
    for (case, fs) in [
        ("emptied", emptied),
        ("never written", never_written),
        ("first segment gone", first_gone),
        ("zeroed behind its header", zeroed),
    ] {
        let refused = must_exist(&fs).err();
        assert!(
            matches!(&refused, Some(OpenError::Missing(_))),
            "{case}: {refused:?}"
        );
        let text = refused.unwrap().to_string();
        assert!(
            text.contains("/log is gone") && text.contains("remove this member"),
            "{text}"
        );
        assert!(!fs.paths().contains(&segment(1)) || case == "zeroed behind its header");
    }
}

#[test]
fn a_segment_cut_short_or_under_another_name_is_refused() {
    let fs = disk();
    small_log(&fs, 300, 3, true);

    for len in [0, 100, 512, 8000] {
        let copy = fs.fork();
        copy.open(&segment(1)).unwrap().set_len(len).unwrap();
        let error = open(&copy).err().unwrap();
        assert!(matches!(error, OpenError::Damaged(_)), "{error}");
    }
    fs.rename(&segment(1), &segment(5)).unwrap();
    let text = open(&fs).err().unwrap().to_string();
    assert!(
        text.contains("it is segment 1 under the name of segment 5"),
        "{text}"
    );
}

#[test]
fn records_of_a_segments_earlier_life_are_never_read() {
    let fs = disk();
    let mut subject = Subject::new(&fs);
    subject.append(1, vec![vec![1; 300]]);
    subject.flush();
    let old = fs.content(&segment(1)).unwrap();
    for i in 0..9 {
        subject.append(1, vec![vec![i; 6000]]);
        subject.flush();
    }
    subject.purge(EntryId { term: 1, index: 8 });
    subject.flush();
    let expected = subject.state.clone();
    drop(subject);

    // As if the zeros that were written over them had never reached the medium.
    let active = fs
        .paths()
        .into_iter()
        .rfind(|p| p.extension().is_some())
        .unwrap();
    let content = fs.content(&active).unwrap();
    let end = content.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let end = end.next_multiple_of(BLOCK as usize);
    fs.open(&active)
        .unwrap()
        .write_at(&old[end..], end as u64)
        .unwrap();
    fs.open(&active)
        .unwrap()
        .write_at(&old[4096..12288], end as u64)
        .unwrap();
    let (_, recovered) = open(&fs).unwrap();

    assert_eq!(State::of(&recovered), expected);
    assert!(recovered.truncated_tail_bytes > 0);
}

#[test]
fn another_format_version_is_refused_by_number() {
    let fs = disk();
    small_log(&fs, 300, 1, true);
    let file = fs.open(&segment(1)).unwrap();
    let mut header = fs.content(&segment(1)).unwrap()[..508].to_vec();
    header[8] = 3;
    file.write_at(&header, 0).unwrap();
    file.write_at(&crc32fast::hash(&header).to_le_bytes(), 508)
        .unwrap();

    let error = open(&fs).err().unwrap();

    assert!(
        matches!(&error, OpenError::UnknownVersion { path, found: 3, known: 2 }
            if path == Path::new("/log/0000000000000001.wal")),
        "{error}"
    );
}
