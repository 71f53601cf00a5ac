//! The program `spandrel`.

fn main() {}
