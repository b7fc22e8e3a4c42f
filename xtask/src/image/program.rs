//! The images and their platforms.

use anyhow::{Result, bail};
use clap::ValueEnum;
use std::fmt;
use std::path::Path;

/// An image with its program.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// Name of the image, of the target in the Dockerfile and of the program.
    pub(super) image: &'static str,
    /// Package of the program.
    pub(super) package: &'static str,
    /// Manifest of the service, relative to the root of the repository; the command has none.
    pub(super) manifest: Option<&'static str>,
}

/// All images.
pub(super) const PROGRAMS: [Program; 4] = [
    Program {
        image: "plimsoll-watcher",
        package: "plimsoll-watcher",
        manifest: Some("deploy/kubernetes/watcher.yaml"),
    },
    Program {
        image: "plimsoll-scheduler",
        package: "plimsoll-objects",
        manifest: Some("deploy/kubernetes/scheduler.yaml"),
    },
    Program {
        image: "plimsoll-actuator",
        package: "plimsoll-actuator-aws",
        manifest: Some("deploy/kubernetes/actuator.yaml"),
    },
    Program { image: "plimsoll", package: "plimsoll-cli", manifest: None },
];

impl Program {
    /// Path of the program in its image.
    pub(super) fn path(&self) -> String {
        format!("usr/bin/{}", self.image)
    }
}

/// The images with these names, or all.
///
/// # Errors
/// If no image has one of the names.
pub(super) fn choose(only: &[String]) -> Result<Vec<&'static Program>> {
    for name in only {
        if !PROGRAMS.iter().any(|program| program.image == name) {
            let images: Vec<_> = PROGRAMS.iter().map(|program| program.image).collect();
            bail!("--only: no image is called {name}; these are: {}", images.join(", "));
        }
    }
    Ok(PROGRAMS.iter().filter(|program| only.is_empty() || only.iter().any(|name| name == program.image)).collect())
}

/// A processor architecture, with its name in images and Debian.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Platform {
    /// x86-64.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Platform {
    /// Architecture of the machine; amd64 if it is neither.
    pub(super) fn of_this_machine() -> Platform {
        if cfg!(target_arch = "aarch64") { Platform::Arm64 } else { Platform::Amd64 }
    }

    /// Whether programs of this architecture run here: those of the machine, and those that the kernel hands to an
    /// emulator (binfmt_misc). The emulator has to be opened at registration (flag F), since images do not contain it.
    pub(super) fn runs_here(self) -> bool {
        if self == Platform::of_this_machine() {
            return true;
        }
        let handler = Path::new("/proc/sys/fs/binfmt_misc").join(format!("qemu-{}", self.cpu()));
        std::fs::read_to_string(handler).is_ok_and(|handler| {
            let mut lines = handler.lines();
            lines.next() == Some("enabled") && lines.any(|line| line.starts_with("flags:") && line.contains('F'))
        })
    }

    /// Name of the processor in rustc and GNU.
    pub(super) fn cpu(self) -> &'static str {
        match self {
            Platform::Amd64 => "x86_64",
            Platform::Arm64 => "aarch64",
        }
    }

    /// Target name of rustc.
    pub(super) fn triple(self) -> String {
        format!("{}-unknown-linux-gnu", self.cpu())
    }

    /// The `e_machine` of an ELF file.
    pub(super) fn elf_machine(self) -> u16 {
        match self {
            Platform::Amd64 => 62,
            Platform::Arm64 => 183,
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Platform::Amd64 => "amd64",
            Platform::Arm64 => "arm64",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{PROGRAMS, choose};
    use crate::workspace;

    #[test]
    fn an_image_is_chosen_by_its_name_alone() {
        let names = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
            choose(&only).map(|all| all.iter().map(|program| program.image).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap().len(), PROGRAMS.len());
        assert_eq!(names(&["plimsoll"]).unwrap(), ["plimsoll"]);
        assert!(names(&["plims"]).unwrap_err().to_string().contains("plimsoll-watcher"));
    }

    #[test]
    fn every_image_is_a_target_of_the_dockerfile_and_its_package_is_compiled_there() {
        let (root, _) = workspace::folders().unwrap();
        let text = std::fs::read_to_string(root.join("deploy/images/Dockerfile")).unwrap();
        for program in &PROGRAMS {
            assert!(text.contains(&format!("\nFROM common AS {}\n", program.image)), "no target {}", program.image);
            let compiled = [' ', ';'].iter().any(|end| text.contains(&format!("--package {}{end}", program.package)));
            assert!(compiled, "{} is not compiled", program.package);
        }
    }
}
