//! What a cache drive keeps is of drives that use it.
//!
//! An area that no drive knows of is room that nobody gets back, and a drive without the area that it is bound to cannot be
//! attached again. Between two changes that follow each other either may be so for a moment, and of a drive that does not work
//! nobody can say what it needs.

use spandrel_node::NodeReport;

/// Whether the cache drives of nodes keep areas for those drives that are bound to them, and for no others.
///
/// # Errors
///
/// Which area is too much, or not there.
pub fn check(reports: &[NodeReport]) -> Result<(), String> {
    let can_tell = |report: &&NodeReport| report.drives.iter().all(|drive| drive.failure.is_none());
    for report in reports.iter().filter(can_tell) {
        for cache in report.caches.iter().filter(|cache| cache.failure.is_none()) {
            let behind = report.drives.iter().filter(|drive| drive.bound_to == cache.drive);
            let behind: Vec<_> = behind.filter_map(|drive| drive.drive).collect();
            if let Some(drive) = cache.bound.iter().find(|drive| !behind.contains(drive)) {
                return Err(format!("{} keeps an area of {drive}, which is not bound to it", cache.location));
            }
            if let Some(drive) = behind.iter().find(|drive| !cache.bound.contains(drive)) {
                return Err(format!("{} has no area of {drive}, which is bound to it", cache.location));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "areas_tests.rs"]
mod tests;
