//! Named repairs of a finished plan. Each can be disabled, to measure its effect.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A repair of a plan that leaves pods unplaced, or whose pods kube-scheduler may strand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Move {
    /// Give up a domain of a topology spread that blocks pods.
    GiveUpDomains,
    /// Permit more pods of a spread per host if no further host can be launched.
    RaiseHostSkew,
    /// Add unplaced pods to nodes of the plan, as the next plan would.
    FillNodes,
    /// Exchange pods between nodes of the plan.
    ExchangePods,
    /// Assign pods evenly to domain tuples instead of by price.
    AssignEvenly,
    /// Plan with one NodePool of each weight.
    SinglePool,
    /// Launch further nodes.
    AddNodes,
    /// Drop pods that kube-scheduler would mostly strand.
    DropPods,
    /// Keep nodes whose pods kube-scheduler would bind such that removing the nodes saves little.
    KeepNodes,
}

impl Move {
    /// All moves, with their names in `--without`.
    pub const ALL: [(Self, &str); 9] = [
        (Self::GiveUpDomains, "give-up-domains"),
        (Self::RaiseHostSkew, "raise-host-skew"),
        (Self::FillNodes, "fill-nodes"),
        (Self::ExchangePods, "exchange-pods"),
        (Self::AssignEvenly, "assign-evenly"),
        (Self::SinglePool, "single-pool"),
        (Self::AddNodes, "add-nodes"),
        (Self::DropPods, "drop-pods"),
        (Self::KeepNodes, "keep-nodes"),
    ];

    /// The name in `--without`.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(one, _)| *one == self).map_or("", |(_, name)| name)
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is not the name of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownMove(String);

impl fmt::Display for UnknownMove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Move::ALL.map(|(_, name)| name);
        write!(f, "unknown move {:?}: the moves are {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownMove {}

impl FromStr for Move {
    type Err = UnknownMove;

    fn from_str(name: &str) -> Result<Self, UnknownMove> {
        let found = Self::ALL.iter().find(|(_, known)| *known == name);
        found.map(|(one, _)| *one).ok_or_else(|| UnknownMove(name.to_owned()))
    }
}

/// The moves that a planner uses.
#[derive(Debug, Clone, Default)]
pub(crate) struct Moves {
    left_out: BTreeSet<Move>,
}

impl Moves {
    pub(crate) fn without(moves: &[Move]) -> Self {
        Self { left_out: moves.iter().copied().collect() }
    }

    pub(crate) fn has(&self, one: Move) -> bool {
        !self.left_out.contains(&one)
    }
}

#[cfg(test)]
mod tests {
    use super::Move;

    #[test]
    fn names_are_read_as_they_are_written() {
        for (one, name) in Move::ALL {
            assert_eq!((one.name(), name.parse()), (name, Ok(one)));
        }
        let error = "give-up".parse::<Move>().unwrap_err().to_string();
        assert!(error.contains("\"give-up\"") && error.contains("give-up-domains"), "{error}");
    }
}
