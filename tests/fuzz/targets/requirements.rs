#![no_main]
//! libFuzzer program for `requirements`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| plimsoll_fuzz::requirements::holds(data));
