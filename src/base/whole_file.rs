//! Files that are there whole or not at all, also when the process is killed in the middle of writing one.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes the file at `path` with what `fill` writes; one that is there already stays until the new one is whole.
///
/// # Errors
/// Those of `fill` and of the system. Nothing is left behind then.
pub fn write(path: &Path, fill: &dyn Fn(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(format!(".{}.partial", std::process::id()));
    let partial = Path::new(&partial);
    let written = match without_name(path, partial, fill) {
        Some(done) => done,
        None => File::create(partial).and_then(|file| filled(file, fill).map(drop)),
    };
    written.and_then(|()| std::fs::rename(partial, path)).inspect_err(|_| {
        // Nothing to do when there is none, or when it cannot be removed either.
        let _ = std::fs::remove_file(partial);
    })
}

fn filled(file: File, fill: &dyn Fn(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<File> {
    let mut out = BufWriter::new(file);
    fill(&mut out)?;
    out.flush()?;
    let file = out.into_inner()?;
    file.sync_all()?;
    Ok(file)
}

/// As a file that gets its name `partial` only when it is whole, so that a killed process leaves none; `None` where the
/// file system has no such files.
#[cfg(target_os = "linux")]
fn without_name(
    path: &Path,
    partial: &Path,
    fill: &dyn Fn(&mut BufWriter<File>) -> io::Result<()>,
) -> Option<io::Result<()>> {
    use rustix::fs::{AtFlags, CWD, Mode, OFlags};
    use std::os::fd::AsRawFd;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let file = rustix::fs::open(folder, OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::from(0o666)).ok()?;
    let file = match filled(file.into(), fill) {
        Ok(file) => file,
        Err(error) => return Some(Err(error)),
    };
    // One that a process of this number left long ago.
    let _ = std::fs::remove_file(partial);
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, own, CWD, partial, AtFlags::SYMLINK_FOLLOW).ok().map(Ok)
}

#[cfg(not(target_os = "linux"))]
fn without_name(_: &Path, _: &Path, _: &dyn Fn(&mut BufWriter<File>) -> io::Result<()>) -> Option<io::Result<()>> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_file_stays_until_the_new_one_is_whole_and_the_folder_shows_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ö file");
        let names = || std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect::<Vec<_>>();
        write(&path, &|out| out.write_all(b"old")).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        write(&path, &|out| {
            out.write_all(&[7; 100_000])?;
            out.flush()?;
            if cfg!(target_os = "linux") {
                assert_eq!(names().len(), 1, "a killed process would leave nothing");
            }
            assert_eq!(std::fs::read(&path).unwrap(), b"old");
            Ok(())
        })
        .unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [7; 100_000]);
        let error = write(&path, &|_| Err(io::Error::other("full"))).unwrap_err();
        assert_eq!((error.to_string().as_str(), names().len()), ("full", 1));
        assert_eq!(std::fs::read(&path).unwrap().len(), 100_000);
        assert!(write(&folder.path().join("no/such"), &|_| Ok(())).is_err());
    }
}
