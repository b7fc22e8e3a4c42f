#![no_main]
//! libFuzzer program for `manifests`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| plimsoll_fuzz::manifests::holds(data));
