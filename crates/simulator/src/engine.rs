//! Engines as data: versions of reads, visibility of commits, contents of the feed.

/// Kind of database, or way to follow one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Name on the command line.
    pub name: &'static str,
    pub(crate) version: VersionKind,
    pub(crate) visibility: VisibilityOrder,
    pub(crate) feed: FeedKind,
    /// An interrupted feed continues at its position. Otherwise each interruption is a loss.
    pub(crate) resumes: bool,
    pub(crate) schema: SchemaChanges,
    /// Servers that replay its log and answer reads.
    pub(crate) standbys: usize,
    /// Its readers are far away, at a round trip of 150 ms, and its feed is not.
    pub(crate) is_far: bool,
}

/// Knowledge that a read has of the state that it saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionKind {
    /// Nothing.
    Unknown,
    /// The sequence of the log, from the same statement (SQLite).
    Sequence,
    /// Its snapshot (PostgreSQL).
    Snapshot,
    /// A point or a span of the binlog (MariaDB).
    BinlogPoint,
    /// The executed transactions, read before the row (MySQL).
    GtidSet,
    /// A span of cluster times; the read waits until it sees what the feed delivered (MongoDB).
    ClusterTime,
}

/// Order in which commits become visible to readers, relative to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VisibilityOrder {
    /// In the instant in which they are in the log.
    WithLog,
    /// Later, in the order of the log.
    LogOrder,
    /// Later, in any order.
    AnyOrder,
}

/// Content of the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeedKind {
    /// Each change with its identity.
    Changes,
    /// Only that something changed: every collection is flushed, and there are no positions.
    Flushes,
    /// Nothing: entries live by their TTL.
    Off,
}

/// Way in which a change of a table's shape becomes known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchemaChanges {
    /// It is in the log.
    InLog,
    /// A look at the catalogue finds it.
    InCatalogue,
}

const SQLITE: Engine = Engine {
    name: "sqlite",
    version: VersionKind::Sequence,
    visibility: VisibilityOrder::WithLog,
    feed: FeedKind::Changes,
    resumes: false,
    schema: SchemaChanges::InLog,
    standbys: 0,
    is_far: false,
};
const POSTGRES: Engine = Engine {
    name: "postgres",
    version: VersionKind::Snapshot,
    visibility: VisibilityOrder::AnyOrder,
    schema: SchemaChanges::InCatalogue,
    ..SQLITE
};
const MARIADB: Engine = Engine {
    name: "mariadb",
    version: VersionKind::BinlogPoint,
    visibility: VisibilityOrder::LogOrder,
    ..SQLITE
};
const MYSQL: Engine = Engine {
    name: "mysql",
    version: VersionKind::GtidSet,
    visibility: VisibilityOrder::AnyOrder,
    ..SQLITE
};
const MONGODB: Engine = Engine {
    name: "mongodb",
    version: VersionKind::ClusterTime,
    visibility: VisibilityOrder::LogOrder,
    resumes: true,
    ..SQLITE
};
/// What a read saw is not known, as of a log whose end cannot be read with the rows.
const UNVERSIONED: Engine =
    Engine { name: "sqlite-unversioned", version: VersionKind::Unknown, ..SQLITE };

/// All engines.
pub const ENGINES: [Engine; 14] = [
    SQLITE,
    Engine { name: "sqlite-without-triggers", feed: FeedKind::Flushes, ..UNVERSIONED },
    UNVERSIONED,
    POSTGRES,
    Engine { name: "postgres-far", is_far: true, ..POSTGRES },
    Engine { name: "postgres-standbys", standbys: 2, ..POSTGRES },
    Engine { name: "postgres-standbys-far", standbys: 2, is_far: true, ..POSTGRES },
    MARIADB,
    Engine { name: "mariadb-far", is_far: true, ..MARIADB },
    MYSQL,
    Engine { name: "mysql-far", is_far: true, ..MYSQL },
    MONGODB,
    Engine { name: "mongodb-far", is_far: true, ..MONGODB },
    Engine { name: "ttl-only", feed: FeedKind::Off, ..UNVERSIONED },
];

impl Engine {
    /// Returns the engine of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        ENGINES.into_iter().find(|engine| engine.name == name)
    }

    /// Returns whether its answers carry positions.
    pub(crate) fn has_positions(&self) -> bool {
        self.feed == FeedKind::Changes
    }
}
