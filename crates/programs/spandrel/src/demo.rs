//! `spandrel demo`.

use crate::arguments::DemoArguments;
use crate::failure::{EXIT_OK, Outcome};

pub fn run(_arguments: DemoArguments) -> Outcome {
    Ok(EXIT_OK)
}
