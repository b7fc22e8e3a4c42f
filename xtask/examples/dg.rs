use plimsoll_model::plan::PlanOptions;
use plimsoll_workloads::{Profile, Question};
use std::path::PathBuf;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let (from, n): (u64, u64) = (a[1].parse().unwrap(), a[2].parse().unwrap());
    for seed in from..from + n {
        let case = plimsoll_workloads::case(seed, &Profile::kubernetes());
        let mut m = Vec::new();
        case.write_manifests(&mut m).unwrap();
        let r = plimsoll_cli::manifests::read(&[PathBuf::from("-")], &mut m.as_slice()).unwrap();
        let objects = r.objects.expanded();
        let q = Question::of(&objects, case.catalog.catalog()).unwrap();
        let t = std::time::Instant::now();
        let all = std::env::var("WITHOUT").unwrap_or_default();
        let moves: Vec<plimsoll_solver::Move> =
            all.split(',').filter(|x| !x.is_empty()).map(|x| x.parse().unwrap()).collect();
        let plan = plimsoll_solver::solve_without(
            &q.snapshot,
            &q.catalogs,
            &PlanOptions { disruption: seed % 2 == 0, ..PlanOptions::default() },
            &moves,
        );
        let ms = t.elapsed().as_millis();
        let text = format!("{plan:?}");
        use std::hash::{Hash, Hasher};
        let mut h = std::collections::hash_map::DefaultHasher::new();
        text.hash(&mut h);
        println!("{seed} {:x} {} {} {}", h.finish(), plan.unschedulable.len(), plan.hourly.0, plan.launches.len());
        if ms > 1500 {
            eprintln!("{seed} {ms} ms");
        }
    }
}
