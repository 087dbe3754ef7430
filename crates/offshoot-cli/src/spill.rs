//! Where large outputs go while the program runs.

use std::path::Path;

use offshoot::shell::SpillConfig;

use crate::output;

/// The folder for the large outputs of this user's commands, which his other processes also use.
pub(crate) struct SpillFolder(SpillConfig);

impl SpillFolder {
    /// One that cannot be used is named on stderr; commands run all the same.
    pub(crate) fn of_this_user() -> Self {
        let config = SpillConfig::of_user("offshoot");
        if let Err(refused) = config.check() {
            let folder = config.folder().display();
            output::note(format_args!(
                "large outputs are not kept in files: {folder}: {refused}; what a result leaves out is lost; \
                 remove it, or set TMPDIR to a folder of your own"
            ));
        }
        Self(config)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.folder()
    }
}

impl Drop for SpillFolder {
    fn drop(&mut self) {
        // The files went with their tasks. One that is still there belongs to somebody who reads it, or
        // to another process.
        self.0.remove_empty();
    }
}
