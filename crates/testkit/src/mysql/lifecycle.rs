//! Settings, stops, restarts, backups and pauses of a server.

use super::*;

impl Server {
    /// Sets global variables without a restart. They apply to sessions that begin later.
    #[track_caller]
    pub fn set(&self, settings: &[(&str, &str)]) {
        assert!(self.guard.is_some(), "other tests share this server: start one");
        for (name, value) in settings {
            self.batch(&format!("SET GLOBAL {name} = {value}"));
        }
    }

    /// Adds command line settings that apply from the next [`Self::restart`].
    #[track_caller]
    pub fn set_for_restart(&mut self, settings: &[(&str, &str)]) {
        self.settings
            .extend(settings.iter().map(|(name, value)| ((*name).into(), (*value).into())));
    }

    // --- Process ------------------------------------------------------------------------------

    /// Stops the server.
    #[track_caller]
    pub fn stop(&mut self, how: Stop) {
        signal(self.pid(), if how == Stop::Fast { Signal::TERM } else { Signal::KILL });
        let mut child = self.process.take().expect("the server runs");
        self.wait("the server to end", || child.try_wait().expect("wait").is_some());
    }

    /// Starts or restarts the server on its port, and waits until it accepts connections.
    #[track_caller]
    pub fn restart(&mut self) {
        if self.runs() {
            self.stop(Stop::Fast);
        }
        note_start(self.flavor.choose("MariaDB", "MySQL"));
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.log_file())
            .expect("its log");
        let ready = |server: &Self| server.log().matches("ready for connections").count();
        let before = ready(self);
        let mut server = programs::server(self.flavor);
        server
            .arg(format!("--datadir={}", self.data().display()))
            .arg(format!("--socket={}", self.socket().display()));
        // Not the system's folder: a starting server removes all temporary tables that it finds
        // there.
        server.arg(format!("--tmpdir={}", self.data().display()));
        server
            .arg(format!("--pid-file={}", self.pid_file().display()))
            .arg(format!("--port={}", self.port()));
        server.args(self.flavor.small_files());
        server.args(self.settings.iter().map(|(name, value)| match value.as_str() {
            "" => format!("--{name}"),
            value => format!("--{name}={value}"),
        }));
        // A separate process group: Ctrl-C must reach only the test, whose end stops the server.
        let child =
            server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0).spawn();
        self.process = Some(child.expect("start the server"));
        self.wait("the server to accept connections", || {
            assert!(
                state(self.pid()).is_some_and(|state| state != 'Z'),
                "the server ended:\n{}",
                self.log_tail()
            );
            ready(self) > before
        });
        let perturbing = globals::of_run(self.flavor);
        if !perturbing.is_empty() {
            self.batch(&perturbing);
        }
    }

    /// Copies the data folder of a stopped server, for [`Self::restore`].
    #[track_caller]
    pub fn back_up(&self) {
        assert!(!self.runs(), "stop the server before its data is copied");
        run(Command::new("cp").arg("-a").arg(self.data()).arg(self.backup_folder()));
    }

    /// Restores the data folder of a stopped server from the copy of [`Self::back_up`].
    #[track_caller]
    pub fn restore(&self) {
        assert!(!self.runs(), "stop the server before its data is replaced");
        std::fs::remove_dir_all(self.data()).expect("the test's own data folder");
        run(Command::new("cp").arg("-a").arg(self.backup_folder()).arg(self.data()));
    }

    fn backup_folder(&self) -> PathBuf {
        self.folder.path().join("backup")
    }

    /// Returns the incarnation number of the running server's positions.
    #[track_caller]
    pub fn incarnation(&self) -> u64 {
        u64::from_str_radix(&self.query(self.flavor.incarnation_sql()), 16)
            .expect("hexadecimal digits")
    }

    /// Returns the log's end in the form of positions: number of the newest file and offset.
    #[track_caller]
    pub fn log_end(&self) -> u64 {
        let text = self.query("SHOW MASTER STATUS");
        let mut fields = text.split('\t');
        let file = fields.next().and_then(|name| name.rsplit('.').next()).expect("a file");
        let file: u64 = file.parse().expect("a number");
        file << 40 | fields.next().and_then(|n| n.parse::<u64>().ok()).expect("an offset")
    }

    /// Waits for the second after the one in which the server started, so that a restart differs.
    #[track_caller]
    pub fn await_next_second(&self) {
        let now = || self.query("SELECT UNIX_TIMESTAMP()");
        let started = self.query(self.flavor.started_sql());
        self.wait("the next second", || now() != started);
    }

    /// Returns true if the server was started and not stopped.
    pub fn runs(&self) -> bool {
        self.process.is_some()
    }

    /// Stops the process by SIGSTOP and waits until it has stopped. [`Self::resume`] continues it.
    #[track_caller]
    pub fn pause(&self) {
        signal(self.pid(), Signal::STOP);
        self.wait("the server to pause", || matches!(state(self.pid()), None | Some('T' | 'Z')));
    }

    /// Continues a paused server.
    pub fn resume(&self) {
        signal(self.pid(), Signal::CONT);
    }

    /// Returns the process id of the server.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("a server of this test's own that runs").id()
    }
}
