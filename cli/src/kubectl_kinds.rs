//! The kinds of objects that a plan depends on, as `kubectl get` takes them.

/// Kinds that a plan depends on and that every cluster with Karpenter's definitions has, as `kubectl get` takes them.
macro_rules! kubectl_kinds {
    () => {
        "nodepools,ec2nodeclasses,nodeclaims,nodes,pods,ds,pdb,pvc,pv,sc,csinodes,priorityclasses,ns"
    };
}
pub(crate) use kubectl_kinds;
