//! Reports for people.

use super::judge::{Judgement, Side, Verdict};
use super::record::Record;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const VERDICTS: [(Verdict, &str); 8] = [
    (Verdict::Same, "the same pods, the same cost"),
    (Verdict::Cheaper, "the same pods, cheaper"),
    (Verdict::MorePods, "more pods placed"),
    (Verdict::OtherPods, "as many pods, other ones, not dearer"),
    (Verdict::Dearer, "as many pods, dearer"),
    (Verdict::FewerPods, "fewer pods placed"),
    (Verdict::Invalid, "Plimsoll's plan is not valid"),
    (Verdict::NoAnswer, "no answer from Karpenter"),
];

fn word(verdict: Verdict) -> &'static str {
    VERDICTS.iter().find(|row| row.0 == verdict).map_or("", |row| row.1)
}

/// One case on one line.
pub(super) fn line(it: &Judgement) -> String {
    let figures = format!(
        "{} pods for {:.4} USD/h, Karpenter {} for {:.4}",
        it.ours.placed.len(),
        it.ours.hourly,
        it.theirs.placed.len(),
        it.theirs.hourly
    );
    let why = match (it.verdict, it.ours.violations.first()) {
        (Verdict::Invalid, Some(first)) => first.clone(),
        _ if it.reasons.is_empty() => "NO REASON KNOWN".to_owned(),
        _ => it.reasons.join("; "),
    };
    format!("{}: {}: {figures}: {why}", it.title, word(it.verdict))
}

/// One case with both plans.
pub(super) fn in_full(it: &Judgement) -> String {
    let mut text = line(it);
    for (name, side) in [("Plimsoll", &it.ours), ("Karpenter", &it.theirs)] {
        let _ = write!(text, "\n{name}: {:.6} USD/h", side.hourly);
        if let Some((stranding, runs)) = side.stranding {
            let _ = write!(text, "; the replay strands a pod in {stranding} of {runs} runs");
        }
        for entry in &side.launches {
            let _ = write!(text, "\n  {entry}");
        }
        for (pod, why) in &side.refused {
            let _ = write!(text, "\n  - {pod}: {why}");
        }
        for entry in &side.violations {
            let _ = write!(text, "\n  ! {entry}");
        }
    }
    text
}

/// Counts on one line each.
pub(super) fn summary(all: &[Judgement]) -> String {
    let mut text = format!("{} cases", all.len());
    for (verdict, word) in VERDICTS {
        let count = all.iter().filter(|it| it.verdict == verdict).count();
        if count > 0 {
            let _ = write!(text, "\n  {count:>5}  {word}");
        }
    }
    let exceptions = all.iter().filter(|it| it.is_exception()).count();
    let unexplained = all.iter().filter(|it| it.is_unexplained()).count();
    let sum = |side: fn(&Judgement) -> &Side| all.iter().map(|it| side(it).hourly).sum::<f64>();
    let _ = write!(text, "\n  exceptions: {exceptions}, without a reason: {unexplained}");
    let _ = write!(text, "\n  cost of all: {:.3} USD/h, Karpenter {:.3}", sum(|it| &it.ours), sum(|it| &it.theirs));
    let count = |side: fn(&Judgement) -> &Side| all.iter().map(|it| side(it).placed.len()).sum::<usize>();
    let _ = write!(text, "\n  pods placed: {}, Karpenter {}", count(|it| &it.ours), count(|it| &it.theirs));
    text
}

/// The report as Markdown.
pub(super) fn whole(all: &[Judgement], seeds: u64, record: &Record) -> String {
    let mut text = format!(
        "# Plimsoll and Karpenter {} on random cases\n\nCompared with the best of {seeds} of Karpenter's seeds.\n\n```\n{}\n```\n",
        record.version(),
        summary(all)
    );
    let mut features: BTreeMap<&str, usize> = BTreeMap::new();
    for it in all.iter().filter(|it| it.is_unexplained()) {
        let inner = it.title.split_once('(').map_or("", |(_, rest)| rest.trim_end_matches(')'));
        inner.split(", ").for_each(|feature| *features.entry(feature).or_default() += 1);
    }
    if !features.is_empty() {
        text.push_str("\nFeatures of the cases without a reason:\n\n");
        for (feature, count) in &features {
            let _ = writeln!(text, "- {feature}: {count}");
        }
    }
    for (heading, unexplained) in [("Without a reason", true), ("With a reason", false)] {
        let _ = write!(text, "\n## {heading}\n\n");
        for it in all.iter().filter(|it| it.is_exception() && it.is_unexplained() == unexplained) {
            let _ = writeln!(text, "- {}", line(it));
        }
    }
    text
}
