//! Ways out of a workspace. Each is tried; none leads anywhere.

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt, symlink},
        net::UnixListener,
        process::CommandExt,
    },
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use rustix::fs::{CWD, FileType, Mode, RenameFlags, makedev, mknodat, renameat_with};
use tollgate_contract::ErrorCode;
use tollgate_tools::{
    fs::{Kind, ReadTextInput, read_text},
    workspace::{Quota, Workspaces},
};

use crate::support::{Place, SECRET, names, role};

const OUT: &str = "leads out of the workspace";

#[tokio::test]
async fn dots_do_not_lead_out() {
    let place = Place::new().await;
    fs::create_dir(place.inside("a")).unwrap();
    for path in [
        "../../../outside/secret",
        "../outside/secret",
        "a/../../x",
        "a/../../../../outside/secret",
        "./a/./../../session/x",
        "../../../../../../../../etc/passwd",
    ] {
        place.assert_refused(path, OUT).await;
    }
    for path in ["..", "a/../.."] {
        assert!(place.list(path).await.unwrap_err().to_string().contains(OUT), "{path}");
    }
}

#[tokio::test]
async fn dots_that_stay_inside_are_fine() {
    let place = Place::new().await;
    place.write("a/b/c.txt", "deep", false).await.unwrap();
    assert_eq!(place.read("a/b/../b/./c.txt").await.unwrap().text, "deep");
    assert_eq!(place.read("./a//b/c.txt").await.unwrap().text, "deep");
    place.write("a/../top.txt", "top", false).await.unwrap();
    assert_eq!(fs::read_to_string(place.inside("top.txt")).unwrap(), "top");
}

#[tokio::test]
async fn absolute_paths_are_told_to_be_relative() {
    let place = Place::new().await;
    let secret = place.outside("secret");
    for path in ["/etc/passwd", "//etc/passwd", "/", secret.to_str().unwrap()] {
        place.assert_refused(path, "paths are relative to the workspace").await;
    }
}

#[tokio::test]
async fn a_link_to_a_file_outside_is_not_followed() {
    let place = Place::new().await;
    symlink(place.outside("secret"), place.inside("absolute")).unwrap();
    symlink("../../../outside/secret", place.inside("relative")).unwrap();
    symlink("/etc/passwd", place.inside("passwd")).unwrap();
    for path in ["absolute", "relative", "passwd"] {
        let error = place.read(path).await.unwrap_err();
        assert!(error.to_string().contains(OUT), "{error}");
        for overwrite in [false, true] {
            let error = place.write(path, "new", overwrite).await.unwrap_err();
            assert!(error.to_string().contains("names a link"), "{error}");
        }
        assert!(place.list(path).await.unwrap_err().to_string().contains(OUT));
    }
    place.assert_untouched();
}

#[tokio::test]
async fn a_link_to_a_folder_outside_is_not_followed() {
    let place = Place::new().await;
    symlink(place.outside(""), place.inside("absolute")).unwrap();
    symlink("../../../outside", place.inside("relative")).unwrap();
    symlink("/", place.inside("everything")).unwrap();
    for path in ["absolute/secret", "relative/secret", "everything/etc/passwd", "relative/new/x"] {
        place.assert_refused(path, OUT).await;
    }
    assert!(place.list("relative").await.unwrap_err().to_string().contains(OUT));
}

#[tokio::test]
async fn a_chain_of_links_that_ends_outside_is_not_followed() {
    let place = Place::new().await;
    fs::create_dir(place.inside("d")).unwrap();
    symlink("d/two", place.inside("one")).unwrap();
    symlink("three", place.inside("d/two")).unwrap();
    symlink("../../../../outside", place.inside("d/three")).unwrap();
    place.assert_refused("one/secret", OUT).await;
}

#[tokio::test]
async fn links_that_stay_inside_are_followed() {
    let place = Place::new().await;
    place.write("d/f.txt", "inside", false).await.unwrap();
    symlink("d", place.inside("folder")).unwrap();
    symlink("folder/f.txt", place.inside("file")).unwrap();
    symlink("../d/../d/f.txt", place.inside("d/around")).unwrap();
    for path in ["folder/f.txt", "file", "d/around", "folder/around"] {
        assert_eq!(place.read(path).await.unwrap().text, "inside", "{path}");
    }
    place.write("folder/new.txt", "new", false).await.unwrap();
    assert_eq!(fs::read_to_string(place.inside("d/new.txt")).unwrap(), "new");
    assert_eq!(place.list("folder").await.unwrap().total, 3);
}

#[tokio::test]
async fn a_link_to_itself_ends() {
    let place = Place::new().await;
    symlink("loop", place.inside("loop")).unwrap();
    let error = place.read("loop").await.unwrap_err();
    assert!(error.to_string().contains("too many links"), "{error}");
    place.write("loop", "x", true).await.unwrap_err();
    place.write("loop/x", "x", true).await.unwrap_err();
}

#[tokio::test]
async fn the_kernels_own_links_lead_nowhere() {
    let place = Place::new().await;
    symlink("/proc/self/root", place.inside("root")).unwrap();
    symlink("/proc/self/cwd", place.inside("cwd")).unwrap();
    let held = fs::File::open(place.outside("secret")).unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&held);
    symlink(format!("/proc/self/fd/{fd}"), place.inside("fd")).unwrap();
    for path in ["root/etc/passwd", "cwd/Cargo.toml"] {
        place.assert_refused(path, OUT).await;
    }
    assert!(place.read("fd").await.unwrap_err().to_string().contains(OUT));
    place.write("fd", "x", true).await.unwrap_err();
    place.assert_untouched();
}

/// An operator who makes a part of /proc a workspace does not thereby open the machine.
#[tokio::test]
async fn not_even_beneath_proc() {
    let folder = tempfile::tempdir().unwrap();
    let own = format!("/proc/{}", std::process::id());
    let workspaces =
        Workspaces::new(folder.path(), Some(Path::new(&own)), Quota::default()).unwrap();
    let root = workspaces.open("session").await.unwrap();
    for path in ["root/etc/passwd", "cwd/Cargo.toml", "exe", "fd/0"] {
        let input = ReadTextInput { path: path.to_owned(), max_bytes: 100 };
        let error = read_text(&root, input).await.unwrap_err();
        assert!(error.to_string().contains("not an ordinary one"), "{path}: {error}");
    }
}

/// A second name that somebody gave to a file outside is, for the kernel, a file inside: it can be read. Writing
/// gives the name inside to a new file, and leaves the one outside alone.
#[tokio::test]
async fn a_hard_link_is_replaced_and_not_written_through() {
    let place = Place::new().await;
    fs::hard_link(place.outside("secret"), place.inside("same")).unwrap();
    assert_eq!(place.read("same").await.unwrap().text, SECRET);
    place.write("same", "new", true).await.unwrap();
    assert_eq!(place.read("same").await.unwrap().text, "new");
    place.assert_untouched();
}

#[tokio::test]
async fn a_pipe_is_refused_and_nobody_waits_for_it() {
    let place = Place::new().await;
    mknodat(CWD, place.inside("pipe"), FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
    for error in [
        place.read("pipe").await.unwrap_err(),
        place.write("pipe", "x", true).await.unwrap_err(),
        place.write("pipe", "x", false).await.unwrap_err(),
    ] {
        assert!(error.to_string().contains("only regular files"), "{error}");
    }
    place.list("pipe").await.unwrap_err();
    place.write("pipe/x", "x", true).await.unwrap_err();
    assert_eq!(place.list(".").await.unwrap().entries[0].kind, Kind::Other);
}

#[tokio::test]
async fn a_socket_and_a_device_are_refused() {
    let place = Place::new().await;
    let _socket = UnixListener::bind(place.inside("socket")).unwrap();
    // The one device that everybody may make: it stands for a removed file.
    let mode = Mode::from_raw_mode(0o666);
    mknodat(CWD, place.inside("device"), FileType::CharacterDevice, mode, makedev(0, 0)).unwrap();
    for path in ["socket", "device"] {
        for error in
            [place.read(path).await.unwrap_err(), place.write(path, "x", true).await.unwrap_err()]
        {
            assert!(error.to_string().contains("only regular files"), "{path}: {error}");
        }
    }
}

#[tokio::test]
async fn a_folder_is_no_file_and_a_file_no_folder() {
    let place = Place::new().await;
    place.write("d/f", "x", false).await.unwrap();
    for error in [
        place.read("d").await.unwrap_err(),
        place.write("d", "x", true).await.unwrap_err(),
        place.write("d/", "x", true).await.unwrap_err(),
        place.write(".", "x", true).await.unwrap_err(),
        place.write("d/..", "x", true).await.unwrap_err(),
        place.write("d/.", "x", true).await.unwrap_err(),
    ] {
        assert!(error.to_string().contains("names a folder"), "{error}");
    }
    for error in [
        place.list("d/f").await.unwrap_err(),
        place.read("d/f/g").await.unwrap_err(),
        place.write("d/f/g", "x", true).await.unwrap_err(),
    ] {
        assert!(error.to_string().contains("not a folder"), "{error}");
    }
}

#[tokio::test]
async fn paths_that_are_none_are_refused() {
    let place = Place::new().await;
    let long = "x".repeat(256);
    let deep = "d/".repeat(3_000);
    for (path, says) in [
        ("", "is empty"),
        ("a\0b", "NUL"),
        ("\0", "NUL"),
        (&long, "longer than"),
        (&deep, "longer than"),
    ] {
        place.assert_refused(path, says).await;
    }
    // The longest name that there is.
    place.write(&"y".repeat(255), "x", false).await.unwrap();
}

#[tokio::test]
async fn odd_names_are_only_names() {
    let place = Place::new().await;
    for name in ["~", "-rf", "a b", "$(id)", "*", "a\nb", "\u{202e}x", "...", "con", "ü", "%2e%2e"]
    {
        place.write(name, name, false).await.unwrap();
        assert_eq!(place.read(name).await.unwrap().text, name, "{name:?}");
    }
    assert_eq!(names(place.root.path()).len(), 11);
}

/// Exchanges two names again and again, from a thread of its own.
struct Swapping {
    stop: Arc<AtomicBool>,
    swaps: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

/// How often names are exchanged at least while something is tried.
const SWAPS: usize = 20_000;

impl Swapping {
    fn start(one: &Path, other: &Path) -> Self {
        let (stop, swaps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (one, other) = (one.to_owned(), other.to_owned());
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&swaps));
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { stop, swaps, thread: Some(thread) }
    }

    fn is_enough(&self) -> bool {
        self.swaps.load(Ordering::Relaxed) >= SWAPS
    }
}

impl Drop for Swapping {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// `path` is once a file with `inside` in it and once a link that leads out.
#[tokio::test]
async fn a_file_that_turns_into_a_link_and_back_gives_nothing_away() {
    let place = Place::new().await;
    fs::write(place.inside("f"), "inside").unwrap();
    symlink(place.outside("secret"), place.inside("swap")).unwrap();
    let swapping = Swapping::start(&place.inside("f"), &place.inside("swap"));
    let (mut read, mut refused, mut tries) = (0, 0, 0);
    while !swapping.is_enough() || read == 0 || refused == 0 {
        match place.read("f").await {
            Ok(text) => {
                assert_eq!(text.text, "inside");
                read += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains(OUT), "{error}");
                refused += 1;
            }
        }
        tries += 1;
        assert!(tries < 1_000_000, "{read} read, {refused} refused");
    }
}

#[tokio::test]
async fn a_folder_that_turns_into_a_link_and_back_gives_nothing_away() {
    let place = Place::new().await;
    place.write("d/f", "inside", false).await.unwrap();
    symlink(place.outside(""), place.inside("swap")).unwrap();
    let swapping = Swapping::start(&place.inside("d"), &place.inside("swap"));
    let (mut read, mut refused, mut tries) = (0, 0, 0);
    while !swapping.is_enough() || read == 0 || refused == 0 {
        match place.read("d/f").await {
            Ok(text) => {
                assert_eq!(text.text, "inside");
                read += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains(OUT), "{error}");
                refused += 1;
            }
        }
        if let Ok(listing) = place.list("d").await {
            assert_eq!(listing.total, 1, "what is outside has two names");
        }
        tries += 1;
        assert!(tries < 1_000_000, "{read} read, {refused} refused");
    }
}

#[tokio::test]
async fn nothing_is_written_through_a_folder_that_turns_into_a_link() {
    let place = Place::new().await;
    fs::create_dir(place.inside("d")).unwrap();
    symlink(place.outside(""), place.inside("swap")).unwrap();
    let swapping = Swapping::start(&place.inside("d"), &place.inside("swap"));
    let (mut written, mut refused) = (0, 0);
    for number in 0..1_000_000 {
        let path = [format!("d/f{}", number % 50), format!("d/n{}/f", number % 50)];
        for path in path {
            match place.write(&path, "mine", true).await {
                Ok(_) => written += 1,
                Err(_) => refused += 1,
            }
        }
        if swapping.is_enough() && written > 0 && refused > 0 && number > 200 {
            break;
        }
    }
    drop(swapping);
    place.assert_untouched();
    assert!(written > 0 && refused > 0, "{written} written, {refused} refused");
}

#[tokio::test]
async fn nothing_is_written_through_a_file_that_turns_into_a_link() {
    let place = Place::new().await;
    fs::write(place.inside("f"), "inside").unwrap();
    symlink(place.outside("secret"), place.inside("swap")).unwrap();
    // A write replaces whatever has the name at that moment: give the other name its link back now and then.
    for round in 0..20 {
        let swapping = Swapping::start(&place.inside("f"), &place.inside("swap"));
        for _ in 0..20 {
            _ = place.write("f", &format!("mine {round}"), true).await;
        }
        drop(swapping);
        _ = fs::remove_file(place.inside("swap"));
        symlink(place.outside("secret"), place.inside("swap")).unwrap();
        if fs::symlink_metadata(place.inside("f")).unwrap().is_symlink() {
            fs::remove_file(place.inside("f")).unwrap();
            fs::write(place.inside("f"), "inside").unwrap();
        }
        place.assert_untouched();
    }
}

/// A folder changes its place within the workspace all the time: what is read is what is in it, or that it is
/// not there.
#[tokio::test]
async fn a_folder_that_moves_about_is_there_or_not() {
    let place = Place::new().await;
    place.write("a/d/f", "inside", false).await.unwrap();
    place.write("b/e/other", "other", false).await.unwrap();
    let swapping = Swapping::start(&place.inside("a/d"), &place.inside("b/e"));
    let mut found = 0;
    while !swapping.is_enough() || found == 0 {
        match place.read("a/d/../../a/d/f").await {
            Ok(text) => {
                assert_eq!(text.text, "inside");
                found += 1;
            }
            Err(error) => assert!(
                matches!(
                    error.code(),
                    ErrorCode::NotFound | ErrorCode::ToolFailed | ErrorCode::InvalidInput
                ),
                "{error}"
            ),
        }
    }
}

/// The same as somebody who may do nothing special. Root passes over permissions, and could hide a mistake.
#[tokio::test]
async fn as_an_unprivileged_user() {
    const NOBODY: u32 = 65_534;
    if role().as_deref() == Some("nobody") || !rustix::process::getuid().is_root() {
        // This whole module runs as such a user already.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // Where this program is, nobody may be able to look.
    let program = folder.path().join("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let own = folder.path().join("own");
    fs::create_dir(&own).unwrap();
    std::os::unix::fs::chown(&own, Some(NOBODY), Some(NOBODY)).unwrap();
    let done = Command::new(&program)
        .args(["escape::", "--test-threads=2"])
        .env("TOLLGATE_TEST_ROLE", "nobody")
        .env("TMPDIR", &own)
        .current_dir("/")
        .gid(NOBODY)
        .uid(NOBODY)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    assert!(!said.contains("running 0 tests"), "{said}");
}
