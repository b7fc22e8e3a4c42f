//! The protocol number, which tells two versions of the services what the other one knows.
//!
//! Each side sends its number when a session opens. A side ignores fields that it does not know. The newer side does
//! what both sides know: it does not send enum values and kinds of messages that the older side does not know, and its
//! checksums leave out fields that the older side does not know ([`crate::known`]).

/// The protocol number of this version. Raised by each change of the wire that [`crate::known::ADDED`] lists, that adds
/// an enum value, a kind of message or a field of catalogs, or that a receiver must know to read a plan.
///
/// - 1: versions that send no number.
/// - 2: the number in Hello and Ready.
/// - 3: CapacityQuotas in snapshots.
/// - 4: limits of rollouts in snapshots.
/// - 5: unschedulable pods that refer to the reasons of earlier ones.
pub const PROTOCOL: u32 = 5;

/// The first number whose clients know unschedulable pods that refer to the reasons of earlier ones.
pub const SHARED_REASONS: u32 = 5;

/// The oldest number that this version works with.
pub const OLDEST_PROTOCOL: u32 = 1;

/// The other side is too old.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the {side} has protocol {theirs}, but this version ({PROTOCOL}) works with {oldest} and later: upgrade the {side}"
)]
pub struct TooOld {
    /// The service on the other side.
    pub side: &'static str,
    /// Its number.
    pub theirs: u32,
    /// The oldest number that is supported.
    pub oldest: u32,
}

/// The protocol number of the `side` that sent `number` in Hello or Ready.
///
/// # Errors
/// That side is older than [`OLDEST_PROTOCOL`].
pub fn protocol_of(side: &'static str, number: u32) -> Result<u32, TooOld> {
    protocol_since(OLDEST_PROTOCOL, side, number)
}

/// As [`protocol_of`], with another oldest number.
///
/// # Errors
/// That side is older than `oldest`.
pub fn protocol_since(oldest: u32, side: &'static str, number: u32) -> Result<u32, TooOld> {
    // Versions without a number.
    let theirs = number.max(1);
    if theirs < oldest { Err(TooOld { side, theirs, oldest }) } else { Ok(theirs) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_since_the_oldest_is_accepted_also_later_ones() {
        assert_eq!(protocol_of("watcher", 0), Ok(1));
        for number in OLDEST_PROTOCOL..PROTOCOL + 3 {
            assert_eq!(protocol_of("watcher", number), Ok(number));
        }
    }

    #[test]
    fn an_older_side_is_refused_with_both_numbers() {
        let text = |oldest, number| protocol_since(oldest, "scheduler", number).unwrap_err().to_string();
        let expected =
            "the scheduler has protocol 5, but this version (5) works with 6 and later: upgrade the scheduler";
        assert_eq!(text(6, 5), expected);
        assert!(text(2, 0).starts_with("the scheduler has protocol 1, "));
        assert_eq!(protocol_since(6, "scheduler", 6), Ok(6));
    }
}
