#![no_main]
//! libFuzzer program for `wire`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| plimsoll_fuzz::wire::holds(data));
