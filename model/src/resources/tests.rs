use super::*;

#[test]
fn a_request_fits_if_each_amount_fits() {
    let room = Resources::from([(CPU, 2_000), (MEMORY, 1 << 30), (PODS, -1)]);
    let table = [
        (Resources::new(), None),
        (Resources::from([(CPU, 2_000), (MEMORY, 1 << 30)]), None),
        (Resources::from([(CPU, 2_001)]), Some(CPU)),
        (Resources::from([("nvidia.com/gpu", 1)]), Some("nvidia.com/gpu")),
        // Zero fits even if the resource is missing or negative.
        (Resources::from([("nvidia.com/gpu", 0), (PODS, 0)]), None),
        (Resources::from([(PODS, 1)]), Some(PODS)),
        (Resources::from([(MEMORY, i64::MAX), (CPU, 9_999)]), Some(CPU)),
    ];
    for (request, excess) in table {
        assert_eq!(request.first_excess(&room), excess, "{request:?}");
        assert_eq!(request.fits_in(&room), excess.is_none(), "{request:?}");
    }
}

#[test]
fn addition_subtraction_and_maximum_apply_by_name() {
    let mut amounts = Resources::from([(CPU, 500), (MEMORY, 100)]);
    amounts.add(&Resources::from([(CPU, 250), (PODS, 1)]));
    assert_eq!(amounts, Resources::from([(CPU, 750), (MEMORY, 100), (PODS, 1)]));
    amounts.subtract(&Resources::from([(MEMORY, 150)]));
    assert_eq!(amounts.get(MEMORY), -50);
    amounts.raise_to(&Resources::from([(CPU, 100), (MEMORY, 0), (EPHEMERAL_STORAGE, -5)]));
    assert_eq!(amounts, Resources::from([(CPU, 750), (MEMORY, 0), (PODS, 1), (EPHEMERAL_STORAGE, -5)]));
}

#[test]
fn sums_saturate() {
    let mut amounts = Resources::from([(MEMORY, i64::MAX)]);
    amounts.add(&Resources::from([(MEMORY, 1)]));
    assert_eq!(amounts.get(MEMORY), i64::MAX);
    amounts.set(MEMORY, i64::MIN);
    amounts.subtract(&Resources::from([(MEMORY, 1)]));
    assert_eq!(amounts.get(MEMORY), i64::MIN);
}

#[test]
fn a_zero_amount_is_contained() {
    let mut amounts = Resources::from([(CPU, 0)]);
    assert!(amounts.contains(CPU) && !amounts.contains(MEMORY));
    assert_eq!((amounts.get(CPU), amounts.get(MEMORY)), (0, 0));
    assert_eq!(amounts.remove(CPU), Some(0));
    assert!(amounts.is_empty());
}
