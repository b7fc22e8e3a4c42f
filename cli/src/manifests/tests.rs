use super::read;
use std::fs;

#[test]
fn folders_are_read_with_all_below_them() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("b/c")).unwrap();
    let namespace = |name: &str| format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n");
    for (path, name) in [("one.yaml", "one"), ("b/two.yml", "two"), ("b/c/three.json", "three"), ("b/c/notes.txt", "{")]
    {
        fs::write(folder.path().join(path), namespace(name)).unwrap();
    }
    std::os::unix::fs::symlink(folder.path(), folder.path().join("b/up")).unwrap();
    let manifests = read(&[folder.path().to_owned()], &mut "".as_bytes()).unwrap();
    let names: Vec<&str> = manifests.objects.namespaces.iter().filter_map(|it| it.metadata.name.as_deref()).collect();
    assert_eq!(names, ["three", "two", "one"]);
    let missing = read(&[folder.path().join("no.yaml")], &mut "".as_bytes()).unwrap_err().to_string();
    assert!(missing.contains("no.yaml: "), "{missing}");
    fs::write(folder.path().join("bytes.yaml"), b"# Caf\xc3\xa9\n# Caf\xe9\n").unwrap();
    let bytes = read(&[folder.path().to_owned()], &mut "".as_bytes()).unwrap_err().to_string();
    assert!(bytes.ends_with("bytes.yaml: line 2: not UTF-8"), "{bytes}");
}
