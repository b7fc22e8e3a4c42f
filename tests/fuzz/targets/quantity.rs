#![no_main]
//! libFuzzer's program for `quantity`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| plimsoll_fuzz::quantity::holds(data));
