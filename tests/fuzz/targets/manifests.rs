#![no_main]
//! libFuzzer's program for `manifests`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| plimsoll_fuzz::manifests::holds(data));
