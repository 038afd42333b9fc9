use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn write_script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_link_leads_to_the_real_binary_and_its_loader() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("listing");
    symlink("/bin/ls", &link).unwrap();
    let program = follow(&link, DEEPEST).unwrap();
    assert_eq!(program.binary, fs::canonicalize("/bin/ls").unwrap());
    assert_eq!(program.execute.len(), 2);
    assert_eq!(program.before, Vec::<String>::new());
}

#[test]
fn a_script_is_run_by_its_interpreter() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("script");
    write_script(&path, "#!/bin/sh -e\necho x\n");
    let program = follow(&path, DEEPEST).unwrap();
    assert_eq!(program.binary, fs::canonicalize("/bin/sh").unwrap());
    let script = fs::canonicalize(&path).unwrap();
    assert_eq!(program.before, ["-e".to_owned(), script.display().to_string()]);
    assert!(program.read_only.contains(&script));
}

#[test]
fn a_shim_is_what_its_manager_says() {
    let home = tempfile::tempdir().unwrap();
    for folder in ["shims", "bin"] {
        fs::create_dir(home.path().join(folder)).unwrap();
    }
    write_script(&home.path().join("shims/tool"), "#!/bin/sh\nexit 1\n");
    write_script(&home.path().join("bin/pyenv"), "#!/bin/sh\necho /bin/cat\n");
    let program = follow(&home.path().join("shims/tool"), DEEPEST).unwrap();
    assert_eq!(program.binary, fs::canonicalize("/bin/cat").unwrap());
}

#[test]
fn scripts_in_a_circle_and_other_files_are_no_programs() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    write_script(&a, &format!("#!{}\n", b.display()));
    write_script(&b, &format!("#!{}\n", a.display()));
    assert!(follow(&a, DEEPEST).unwrap_err().to_string().contains("circle"));
    let text = folder.path().join("text");
    write_script(&text, "just text");
    assert!(follow(&text, DEEPEST).unwrap_err().to_string().contains("neither"));
    let config = ProgramConfig::default();
    assert_eq!(one("no-such-program-anywhere", &config), Err(Missing::NotFound));
}
