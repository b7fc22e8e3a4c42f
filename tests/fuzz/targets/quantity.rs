#![no_main]
//! libFuzzer program for `quantity`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| plimsoll_fuzz::quantity::holds(data));
