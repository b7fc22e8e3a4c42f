//! Runs the commands of the documentation and compares their output with the pages; checks that the YAML of the pages
//! is valid.
//!
//! With `PLIMSOLL_UPDATE=1`, updates the pages with the output.

use crate::{plimsoll_with, repository};
use clap::Parser as _;
use plimsoll_model::names::annotation;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

/// Pages with examples.
fn pages() -> Vec<PathBuf> {
    let folder = std::fs::read_dir(repository("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = folder.filter(|path| path.extension().is_some_and(|it| it == "md")).collect();
    pages.sort();
    pages.extend([repository("README.md"), repository("deploy/README.md")]);
    pages
}

fn text(page: &PathBuf) -> String {
    std::fs::read_to_string(page).unwrap()
}

/// Words of a command line; quotes group words.
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

/// Code blocks of a language, without their fences.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    page.split(&fence).skip(1).map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

/// Output of a command, without trailing spaces.
fn printed(command: &str) -> String {
    let arguments = words(command.strip_prefix("$ plimsoll ").expect("a command"));
    let run =
        Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(arguments).current_dir(repository(".")).output().unwrap();
    assert!(run.status.success(), "{command}: {}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).unwrap()
}

#[test]
fn console_blocks_show_what_is_printed() {
    let mut count = 0;
    for page in pages() {
        let mut current = text(&page);
        for block in blocks(&current, "console") {
            let (command, shown) = block.split_once('\n').unwrap();
            let output = printed(command);
            count += 1;
            // Long output is abbreviated.
            if shown.is_empty() || shown == output {
                continue;
            }
            if std::env::var_os("PLIMSOLL_UPDATE").is_some() {
                current = current.replace(&block, &format!("{command}\n{output}"));
                std::fs::write(&page, &current).unwrap();
                continue;
            }
            assert_eq!(shown, output, "{}: {command}; PLIMSOLL_UPDATE=1 writes the page anew", page.display());
        }
    }
    assert!(count >= 7, "the pages have examples");
}

/// Parts of shell blocks and help texts that call the command, up to a pipe, a redirection or a comment.
fn calls(script: &str) -> Vec<String> {
    let mut calls = Vec::new();
    for line in script.replace("\\\n", " ").lines() {
        let line = line.replace("cargo run --locked --bin plimsoll --", "plimsoll");
        for part in line.split(['|', '>', '`']).flat_map(|part| part.split("<(")) {
            let part = part.trim().trim_end_matches(')');
            if part.starts_with("plimsoll ") {
                calls.push(part.split("  ").next().unwrap().to_owned());
            }
        }
    }
    calls
}

#[test]
fn commands_of_scripts_and_of_the_text_are_understood() {
    let mut count = 0;
    for page in pages() {
        let page = text(&page);
        let mut scripts = blocks(&page, "sh");
        // Commands in sentences.
        scripts.extend(
            page.split('`')
                .filter(|code| code.starts_with("plimsoll ") || code.starts_with("cargo run"))
                .map(str::to_owned),
        );
        for call in scripts.iter().flat_map(|script| calls(script)) {
            // `plimsoll plan` and `plimsoll <command> --help` refer to the command and are not examples.
            if call.contains('<') || call.contains("--help") {
                continue;
            }
            let parsed = plimsoll_cli::Cli::try_parse_from(plimsoll_cli::split_subject(
                words(&call).into_iter().map(Into::into),
            ));
            if let Err(error) = parsed {
                let harmless = error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
                assert!(harmless || call.split(' ').count() == 2, "{call}: {error}");
            }
            count += 1;
        }
    }
    assert!(count >= 6, "the pages have scripts: {count}");
}

#[test]
fn the_annotations_of_node_pools_are_listed() {
    let page = std::fs::read_to_string(repository("deploy/README.md")).unwrap();
    let row = page.lines().find_map(|line| line.strip_prefix("| NodePool | none | ")).unwrap();
    let names = row.split('`').skip(1).step_by(2);
    let listed: BTreeSet<String> = names.map(|name| format!("{}{name}", annotation::PREFIX)).collect();
    assert_eq!(listed, BTreeSet::from(annotation::OF_NODE_POOLS.map(str::to_owned)));
}

#[test]
fn yaml_of_the_pages_is_taken() {
    let mut count = 0;
    for page in pages() {
        for block in blocks(&text(&page), "yaml").iter().filter(|block| block.contains("apiVersion: ")) {
            let run = plimsoll_with(&["plan", "-f", "-", "-o", "json"], block);
            assert_eq!(run.status, 0, "{}: {}\n{block}", page.display(), run.stderr);
            count += 1;
        }
    }
    assert!(count >= 2, "the pages have YAML: {count}");
}

#[test]
fn the_glossary_explains_the_words_of_plans() {
    let glossary = text(&repository("docs/glossary.md")).to_lowercase();
    for word in
        ["offering", "node class", "catalog", "ledger", "shape", "snapshot", "lower bound", "replay", "primary claim"]
    {
        assert!(glossary.contains(&format!("**{word}**")), "{word}");
    }
}
