//! Suggestions for misspelt names.

/// Longest text that is compared. The comparison takes the product of both lengths; Kubernetes' names have at most 253
/// bytes.
const MAX_LENGTH: usize = 253;

/// The candidate nearest to `text`, if it is near enough to be a misspelling: at most one edit per four letters, and
/// the same digits, since `c4.large` is another type than `c5.large`. Case and separators do not count. `None` if
/// `text` is a candidate itself.
///
/// ```
/// use plimsoll_model::similar::nearest;
///
/// assert_eq!(nearest("ondemand", ["spot", "on-demand"]), Some("on-demand"));
/// assert_eq!(nearest("m5.lrage", ["m5.large", "m5.xlarge"]), Some("m5.large"));
/// assert_eq!(nearest("blue", ["green", "red"]), None);
/// assert_eq!(nearest("c4.large", ["c5.large"]), None);
/// assert_eq!(nearest("spot", ["spot", "sport"]), None);
/// ```
#[must_use]
pub fn nearest<'c>(text: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let wanted = folded(text);
    let digits = digits(&wanted);
    let bound = wanted.len().div_ceil(4);
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        if candidate == text {
            return None;
        }
        let name = folded(candidate);
        if self::digits(&name) != digits
            || wanted.len() > MAX_LENGTH
            || name.len() > MAX_LENGTH
            || name.len().abs_diff(wanted.len()) > bound
        {
            continue;
        }
        let found = (distance(&wanted, &name), candidate);
        if found.0 <= bound && best.is_none_or(|best| found < best) {
            best = Some(found);
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Whether both are the same but for case and separators.
///
/// ```
/// use plimsoll_model::similar::is_same_but_for_case;
///
/// assert!(is_same_but_for_case("Nvidia.com/GPU", "nvidia.com/gpu"));
/// assert!(!is_same_but_for_case("nvidia.com/gpumem", "nvidia.com/gpu"));
/// ```
#[must_use]
pub fn is_same_but_for_case(left: &str, right: &str) -> bool {
    folded(left) == folded(right)
}

/// The digits, sorted: two that are exchanged are a misspelling, another one is another thing.
fn digits(letters: &[char]) -> Vec<char> {
    let mut digits: Vec<char> = letters.iter().copied().filter(char::is_ascii_digit).collect();
    digits.sort_unstable();
    digits
}

/// Lower-case letters and digits, and slashes.
fn folded(text: &str) -> Vec<char> {
    text.chars().filter(|letter| letter.is_alphanumeric() || *letter == '/').flat_map(char::to_lowercase).collect()
}

/// Insertions, deletions, substitutions and exchanges of neighbours that turn one into the other.
fn distance(left: &[char], right: &[char]) -> usize {
    // Rows of the table of prefixes: before the last two letters, before the last, and now.
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    let mut previous: Option<char> = None;
    for (row, letter) in left.iter().enumerate() {
        let mut now = vec![row + 1];
        for (column, other) in right.iter().enumerate() {
            let at = |line: &[usize], index: usize| line.get(index).copied().unwrap_or(usize::MAX / 2);
            let replaced = at(&last, column) + usize::from(letter != other);
            let mut best = replaced.min(at(&last, column + 1) + 1).min(at(&now, column) + 1);
            let exchanged = column > 0 && previous == Some(*other) && right.get(column - 1) == Some(letter);
            if exchanged {
                best = best.min(at(&before, column - 1) + 1);
            }
            now.push(best);
        }
        previous = Some(*letter);
        before = std::mem::replace(&mut last, now);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        let count = |left: &str, right: &str| distance(&folded(left), &folded(right));
        let table = [
            ("", "", 0),
            ("spot", "", 4),
            ("spot", "spot", 0),
            ("lrage", "large", 1),
            ("cat", "cut", 1),
            ("kitten", "sitting", 3),
        ];
        for (left, right, expected) in table {
            assert_eq!((count(left, right), count(right, left)), (expected, expected), "{left} {right}");
        }
        assert_eq!(count("On-Demand", "ondemand"), 0, "case and separators do not count");
    }
}
