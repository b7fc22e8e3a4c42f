//! The commands of docs/cli.md run, and print what the page shows first.

use crate::repository;
use std::process::Command;

/// The words of a command line; quotes keep blanks together.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            letter => words.last_mut().unwrap().push(letter),
        }
    }
    words
}

#[test]
fn the_commands_of_the_page_run() {
    let page = std::fs::read_to_string(repository("docs/cli.md")).unwrap();
    let mut count = 0;
    for block in page.split("```console\n").skip(1) {
        let mut lines = block.split("```").next().unwrap().lines();
        let command = lines.next().unwrap().strip_prefix("$ plimsoll ").expect("a command");
        let run = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(words(command))
            .current_dir(repository("."))
            .output()
            .unwrap();
        assert!(run.status.success(), "{command}: {}", String::from_utf8_lossy(&run.stderr));
        let stdout = String::from_utf8(run.stdout).unwrap();
        // The rest has figures that change with the solver and the catalog.
        let shown = lines.next().or(stdout.lines().next());
        assert_eq!(stdout.lines().next(), shown, "{command}");
        count += 1;
    }
    assert!(count >= 5, "the page has examples");
}
