//! Simulated media: drives of a cluster on this machine that take the time of other ones.
//!
//! A study of slow drives, or of fast ones in front of slow ones, needs no such drives: the files or the memory that
//! serve as drives answer when the real ones would have. One factor scales all media alike, so that they and not this
//! machine's processor set the shape of what is measured. The figures are the platform's, see
//! [`spandrel_platform_linux::SimulatedMedium`].

use serde::{Deserialize, Serialize};
use spandrel_cluster::{DriveRole, MediaClass};
use spandrel_platform_linux::{MediumKind, SimulatedMedium};
use spandrel_shared::Error;

use crate::arguments::UpArguments;

const SCALE_DEFAULT: f64 = 1.0;
const SCALE_MAX: f64 = 1000.0;

/// The media whose time the drives of a cluster take.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MediaSettings {
    /// That of the drives that hold copies. None: they are as fast as this machine.
    pub capacity: Option<MediaClass>,
    /// That of the cache drives.
    pub cache: Option<MediaClass>,
    /// How fast they are, compared with real ones.
    pub scale: f64,
}

impl Default for MediaSettings {
    fn default() -> Self {
        Self { capacity: None, cache: None, scale: SCALE_DEFAULT }
    }
}

impl MediaSettings {
    /// What was asked for. Refused if it has nothing to be said of.
    pub fn from_arguments(arguments: &UpArguments) -> Result<Self, Error> {
        let refuse = |option: &str, why: &str, next: &str| {
            Err(Error::new("OPTION_INVALID", format!("no cluster can be made with {option}"), why, next))
        };
        let media = Self {
            capacity: arguments.capacity_media.map(Into::into),
            cache: arguments.cache_media.map(Into::into),
            scale: arguments.media_scale.unwrap_or(SCALE_DEFAULT),
        };
        if media.cache.is_some() && arguments.cache_drives.unwrap_or(0) == 0 {
            return refuse(
                "--cache-media alone",
                "it has no cache drives",
                "say how many with --cache-drives, or leave the option out",
            );
        }
        if arguments.media_scale.is_some() && media.is_real() {
            return refuse(
                "--media-scale alone",
                "its drives are as fast as this machine",
                "say which media they are with --capacity-media or --cache-media, or leave the option out",
            );
        }
        // Written so that what is no number is refused, too.
        if !(media.scale > 0.0 && media.scale <= SCALE_MAX) {
            return refuse(
                &format!("--media-scale {}", media.scale),
                &format!("a scale is more than 0 and at most {SCALE_MAX}"),
                "choose a number in between: 1 is as fast as real media, 0.01 a hundredth of that",
            );
        }
        Ok(media)
    }

    /// What options say that is not so, each with what is.
    pub fn differences(&self, arguments: &UpArguments) -> Vec<String> {
        let medium = |media: Option<MediaClass>| media.map_or("none".to_owned(), |media| media.to_string());
        let media = [
            ("--capacity-media", arguments.capacity_media, self.capacity),
            ("--cache-media", arguments.cache_media, self.cache),
        ];
        let media = media.into_iter().filter_map(|(name, asked, has)| {
            let asked = asked.map(MediaClass::from)?;
            (Some(asked) != has).then(|| format!("{name} {asked}, but it has {}", medium(has)))
        });
        let scale = arguments.media_scale.filter(|asked| *asked != self.scale);
        let scale = scale.map(|asked| format!("--media-scale {asked}, but it has {}", self.scale));
        media.chain(scale).collect()
    }

    /// Whether all drives are as fast as this machine.
    pub fn is_real(&self) -> bool {
        self.capacity.is_none() && self.cache.is_none()
    }

    /// What drives that are used for this take the time of, if it is not their own.
    pub fn simulated(&self, role: DriveRole) -> Option<SimulatedMedium> {
        let media = match role {
            DriveRole::Capacity => self.capacity,
            DriveRole::Cache => self.cache,
        };
        let kind = match media? {
            MediaClass::Nvme => MediumKind::Nvme,
            MediaClass::Ssd => MediumKind::SataSsd,
            MediaClass::Hdd => MediumKind::Disk,
        };
        Some(SimulatedMedium { kind, scale: self.scale })
    }

    /// For whoever starts the cluster; none if there is nothing to say.
    pub fn describe(&self) -> Option<String> {
        let drives = match (self.cache, self.capacity) {
            (None, None) => return None,
            (None, Some(capacity)) => format!("drives are as slow as {capacity}"),
            (Some(cache), None) => format!("cache drives are as slow as {cache}"),
            (Some(cache), Some(capacity)) => {
                format!("drives are as slow as {capacity}, cache drives as {cache}")
            }
        };
        let scale = match self.scale {
            SCALE_DEFAULT => String::new(),
            scale => format!(", at {scale} of the speed of real ones"),
        };
        Some(format!("{drives}{scale}"))
    }
}

#[cfg(test)]
#[path = "media_tests.rs"]
mod tests;
