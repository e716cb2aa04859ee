use std::{hint::black_box, time::Instant};

/// Steps of the reference work, about a millisecond on a current processor.
const STEPS: u64 = 1 << 20;

/// Does a fixed amount of arithmetic and returns how long it took, in milliseconds. The variation of this time is that of the machine.
pub(crate) fn work() -> f64 {
    let start = Instant::now();
    // xorshift64 (Marsaglia 2003): each step depends on the previous one, so that the compiler cannot skip any.
    let mut state = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..STEPS {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
    start.elapsed().as_secs_f64() * 1000.0
}
