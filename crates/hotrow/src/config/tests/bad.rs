//! Bad configurations, with their refusals.

/// Cases: a line that is added to a good file, and a fragment of the refusal.
pub(super) const BAD: &[(&str, &str)] = &[
    ("[sources]\nmain = 1", "sources.main: must be a table, [sources.main], not a number"),
    (
        "source = 'main'",
        "collections.products.source: must name a source of this file (\"default\"), not \"main\"",
    ),
    ("source = 5", "collections.products.source: must be a text, not 5"),
    ("[lisen]\ndata = '1.1.1.1:1'", "f.toml:4: lisen: unknown table; did you mean listen?"),
    ("[zzz]", "zzz: unknown table; known here: listen, admin, limits"),
    (
        "[limits]\nheader_timout = '1s'",
        "f.toml:5: limits.header_timout: unknown key; did you mean header_timeout",
    ),
    ("[cache]\ncapasity = 1", "cache.capasity: unknown key; did you mean capacity?"),
    ("colections = 1", "collections.products.colections: unknown key"),
    ("Table = 'x'", "collections.products.Table: unknown key; did you mean table?"),
    ("[listen]\ndata = 'shop.example:80'", "listen.data: must be an address and a port such as"),
    ("[limits]\nreads_in_flight = 1", "unknown key; it belongs to [source]"),
    ("[tls]", "tls: unknown table; it belongs to [admin] or [listen]"),
    ("[listen]\ndata = '127.0.0.1'", "not \"127.0.0.1\""),
    ("[listen]\ndata = '127.0.0.1:70000'", "listen.data: must be an address"),
    (
        "[listen]\nadmin = 80810",
        "listen.admin: must be an address and a port such as 127.0.0.1:8080, [::1]:8080, \
         localhost:8080, 8080 (this machine only) or :8080 (every interface), not 80810",
    ),
    (
        "[listen]\nadmin = '127.0.0.1:8080'",
        "f.toml:5: listen.admin: 127.0.0.1:8080 must not be the address of the data",
    ),
    (
        "[listen]\ndata = '0.0.0.0:8081'",
        "must not be the address of the data listener, which is 0.0.0.0:8081",
    ),
    ("[listen]\nworkers = 0", "listen.workers: must be a whole number between 1 and 1024, not 0"),
    ("[listen]\nworkers = 2.5", "not 2.5"),
    ("[listen]\nworkers = '${CORES}'", "listen.workers: the environment variable CORES is not set"),
    ("[listen]\nworkers = []", "not a list"),
    ("[admin]\ntoken = 'fifteen-chars-!'", "admin.token: must have 16 to 256 characters, not 15"),
    ("[admin]\ntoken = 'with a blank in the middle'", "admin.token: must be made of visible ASCII"),
    ("[admin]\ntoken = 5", "admin.token: must be a text, not 5"),
    (
        "[admin]\nhosts = ['h.example:80']",
        "admin.hosts: must be host names such as \"hotrow.internal\", without scheme",
    ),
    ("[admin]\nhosts = ['http://h.example']", "admin.hosts: must be host names"),
    ("[admin]\nhosts = ['*.example']", "not \"*.example\""),
    ("[admin]\nhosts = ['h.example', '']", "admin.hosts: must be host names"),
    ("[admin]\nhosts = 'h..example'", "admin.hosts: must be host names"),
    ("[admin]\nhosts = 5", "admin.hosts: must be a text, not 5"),
    ("[access]", "access: must have a role, or nothing could be read"),
    ("[access]", "access: must accept a credential: add [access.keys.NAME]"),
    ("[access]\nroles = 1", "access.roles: must be a table, [access.roles], not a number"),
    ("[access]\nanonymous_role = 'x'", "access.anonymous_role: must name a role of this file"),
    ("[access]\nfailures_per_client = '0/s'", "access.failures_per_client: "),
    ("[access.roles.a]", "access.roles.a.collections: is required"),
    ("[access.roles.A]\ncollections = '*'", "access.roles.A: the name must begin with a letter"),
    (
        "[access.roles.a]\ncollections = ['prices']",
        "access.roles.a.collections: must name collections of this file, or be \"*\", not \"prices\"",
    ),
    (
        "[access.roles.a]\ncollections = '*'\nclaim_values = []",
        "access.roles.a.claim_values: must be 1 to 64 texts",
    ),
    ("[access.keys.a]\nid = 'x'", "access.keys.a.id: must be the 16 lowercase hexadecimal digits"),
    ("[access.keys.a]\nsha256 = 'x'", "access.keys.a.sha256: must be the 64 lowercase"),
    ("[access.keys.a]\nsha256 = 'hrk_x'", "must be the SHA-256 of the key, not the key itself"),
    ("[access.keys.a]\nroles = 'x'", "access.keys.a.roles: must name a role of this file"),
    ("[access.keys.a]", "access.keys.a.roles: is required"),
    ("[access.jwt]", "access.jwt: must have jwks_url, jwks_file or hs256"),
    ("[access.jwt]\njwks_file = 'f'", "access.jwt.audience: is required with a JWKS"),
    ("[access.jwt]\njwks_file = 'f'", "access.jwt.issuer: is required with a JWKS"),
    ("[access.jwt]\nhs256_secret = 'x'", "access.jwt.hs256_secret: must have 32 to 1024 bytes"),
    (
        "[access.jwt]\nhs256_secret = '-----BEGIN PUBLIC KEY----- of 2048 bits'",
        "access.jwt.hs256_secret: must be a random secret, not a key or certificate",
    ),
    (
        "[access.jwt]\nhs256_secret = 'x'\njwks_file = 'f'",
        "access.jwt.hs256_secret: cannot be combined with jwks_file",
    ),
    (
        "[access.jwt]\nhs256_secret = 'x'\nrefresh = '5s'",
        "access.jwt.refresh: has no meaning with hs256_secret",
    ),
    (
        "[access.jwt]\njwks_url = 'https://id.example/'\njwks_file = 'f'",
        "access.jwt.jwks_url: cannot be combined with jwks_file",
    ),
    (
        "[access.jwt]\njwks_url = 'http://id.example/'",
        "access.jwt.jwks_url: must begin with https://",
    ),
    ("[access.jwt]\njwks_ca = 'f'", "access.jwt.jwks_ca: has no meaning without jwks_url"),
    ("[access.certificates.a]\nsubject = 'CN=a'", "access.certificates: need listen.tls.client_ca"),
    ("[access.certificates.a]\nsubject = ''", "access.certificates.a.subject: must have 1 to 1024"),
    ("[access.certificates.a]", "access.certificates.a.subject: is required"),
    (
        "[access]\ngrants_file = 'f'\n[access.roles.a]\ncollections = '*'",
        "access.roles: must be in grants_file",
    ),
    (
        "[access.roles.a]\ncollections = '*'\nrate_class = 'x'",
        "access.roles.a.rate_class: must be in the list `classes` of a rule",
    ),
    ("[limits.rate.a]\nclasses = []", "limits.rate.a.classes: must be 1 to 16 names"),
    ("[limits.rate.a]\nclasses = 'A'", "limits.rate.a.classes: must be 1 to 16 names"),
    ("[cors]", "cors.allowed_origins: is required"),
    ("[cors]\nallowed_origins = []", "cors.allowed_origins: is required"),
    (
        "[cors]\nallowed_origins = 'https://shop.example/'",
        "cors.allowed_origins: must be origins as browsers write them",
    ),
    (
        "[cors]\nallowed_origins = ['*', 'https://shop.example']",
        "cors.allowed_origins: must be origins as browsers write them",
    ),
    (
        "[cors]\nallowed_origins = '*'\nallow_credentials = true",
        "cors.allow_credentials: cannot be combined with allowed_origins = \"*\"",
    ),
    ("[access.jwt]\nrole_claim = []", "access.jwt.role_claim: must name 1 to 64 claims"),
    (
        "[access.roles.a]\ncollections = '*'\n[access.roles.a.columns.prices]\nnames = 'id'",
        "access.roles.a.columns.prices: must be named after a collection of this file",
    ),
    (
        "[access.roles.a]\ncollections = []\n[access.roles.a.columns.products]\nnames = 'id'",
        "access.roles.a.columns.products: must be one of the role's collections",
    ),
    (
        "[access.roles.a]\ncollections = '*'\n[access.roles.a.columns.products]",
        "access.roles.a.columns.products.names: is required: the columns that",
    ),
    (
        "[access.roles.a]\ncollections = '*'\n[access.roles.a.columns.products]\nnames = []",
        "access.roles.a.columns.products.names: must be 1 to 64 texts",
    ),
    ("[access.jwt]\ntenant_claim = ['a', '']", "access.jwt.tenant_claim: must name 1 to 64 claims"),
    ("[access.keys.a]\ntenant = ''", "access.keys.a.tenant: must be at most 64 texts of 1 to 255"),
    ("[access.keys.a]\ntenant = ['a', 'b\u{fffd}']", "access.keys.a.tenant: must be at most 64"),
    ("tenant = 'owner'", "collections.products.tenant: needs [access]: only a credential names"),
    ("tenant = ''", "collections.products.tenant: must have 1 to 256 bytes"),
    (
        "tenant = 'owner'\n[access]\nanonymous_role = 'a'\n[access.roles.a]\ncollections = '*'",
        "collections.products.tenant: needs access.jwt.tenant_claim, or an API key with tenant",
    ),
    (
        "tenant = 'owner'\n[cache]\nwhen_stale = 'stale'",
        "collections.products.tenant: cannot be combined with cache.when_stale = \"stale\": a row",
    ),
    (
        "tenant = 'owner'\n[cache]\nstale_if_error = '1s'",
        "collections.products.tenant: cannot be combined with cache.stale_if_error: a row that",
    ),
    (
        "hide_existence = true",
        "collections.products.hide_existence: has no meaning without tenant, the column",
    ),
    ("allow_stale = true", "collections.products.allow_stale: has no meaning without tenant"),
    (
        "cache_control = 'public, max-age=60'\n[access.roles.a]\ncollections = '*'",
        "collections.products.cache_control: must contain private or no-store with [access]",
    ),
    (
        "[listen]\nadmin = '0.0.0.0:9'\n[access.roles.a]\ncollections = '*'",
        "admin.token: is required with [access] where the admin address, 0.0.0.0:9,",
    ),
    (
        "[limits]\nconnections = -1",
        "limits.connections: must be a whole number between 1 and 1000000, not -1",
    ),
    (
        "[limits]\nconnections = 99999999999999999999999999",
        "limits.connections: must be a whole number",
    ),
    (
        "[limits]\nheader_bytes = '1KiB'",
        "limits.header_bytes: must be a size such as 64KiB or 256MiB between 8KiB and 1MiB",
    ),
    ("[limits]\nheader_bytes = '16 kib'", "not \"16 kib\""),
    (
        "[limits]\ntarget_bytes = '32KiB'",
        "limits.target_bytes: must not exceed limits.header_bytes: 32768",
    ),
    (
        "[limits]\nbody_bytes = true",
        "limits.body_bytes: must be a size such as 64KiB or 256MiB between 1KiB and 64MiB, not \
         true",
    ),
    (
        "[limits]\nidle_timeout = '0s'",
        "limits.idle_timeout: must be a time with its unit such as \"250ms\" or \"5m\" between \
         10ms",
    ),
    ("[limits]\nrequest_timeout = 5", "limits.request_timeout: must be a time with its unit"),
    ("[limits]\ndrain_timeout = '2h'", "between 10ms and 1h, not \"2h\""),
    ("[limits]\nmax_batch = 0", "limits.max_batch: must be a whole number between 1 and 8000"),
    (
        "[limits]\nmax_batch = 2000",
        "source.query_keys: must be at least limits.max_batch, because a batch is one query: 1000 \
         is less",
    ),
    ("[limits]\nwaiting_keys = 5", "limits.waiting_keys: must be at least limits.max_batch"),
    ("[limits]\nposition_wait = '1d'", "limits.position_wait: must be"),
    ("[limits.breaker]\nfailure = 3", "limits.breaker.failure: unknown key; did you mean failures"),
    (
        "[limits.breaker]\nprobes = 0",
        "limits.breaker.probes: must be a whole number between 1 and 100, not 0",
    ),
    (
        "[limits.breaker]\nfailure_rate = 0",
        "limits.breaker.failure_rate: must be a number between 0.01 and 1, not 0",
    ),
    (
        "[limits.breaker]\nopen_for = '1m'",
        "limits.breaker.open_for: must not be longer than limits.breaker.open_for_max",
    ),
    ("[limits.shed]\nmemory_limit = '1KiB'", "limits.shed.memory_limit: must be a size such as"),
    (
        "[limits.shed]\nmemory_share = 1",
        "limits.shed.memory_share: must be a number between 0.1 and 0.99, not 1",
    ),
    ("[limits]\nshed = true", "limits.shed: must be a table, [limits.shed], not"),
    (
        "priority = 'urgent'",
        "collections.products.priority: must be \"normal\" or \"low\" or \"high\", not \"urgent\"",
    ),
    ("[cache]\nenabled = 'yes'", "cache.enabled: must be true or false, not \"yes\""),
    (
        "[cache]\ncapacity = '1000KiB'",
        "cache.capacity: must be a size such as 64KiB or 256MiB between 1MiB and 1PiB, not \
         \"1000KiB\"",
    ),
    ("[cache]\nttl_jitter = 1.5", "cache.ttl_jitter: must be a number between 0 and 1, not 1.5"),
    ("[cache]\nttl_jitter = nan", "cache.ttl_jitter: must be a number between 0 and 1, not nan"),
    (
        "[cache]\nnegative_share = 0.2",
        "cache.negative_share: must be a number between 0 and 0.1, not 0.2",
    ),
    (
        "[cache]\nttl = '5 minutes'",
        "cache.ttl: must be a time with its unit such as \"250ms\" or \"5m\" between 10ms and 365d",
    ),
    ("[cache]\nmax_staleness = '1ms'", "cache.max_staleness: must be"),
    (
        "[cache]\nwhen_stale = 'panic'",
        "cache.when_stale: must be \"bypass\" or \"stale\" or \"refuse\", not \"panic\"",
    ),
    (
        "[cache]\ncapacity = '1MiB'\nentry_size_hint = '2MiB'",
        "cache.entry_size_hint: must not be larger than cache.capacity",
    ),
    (
        "[cache]\nttl = 2020-01-01",
        "cache.ttl: must be a time with its unit such as \"250ms\" or \"5m\" between 10ms and \
         365d, not a date",
    ),
    ("table = ''", "collections.products.table: must have 1 to 256 bytes"),
    ("table = ['a']\ntable2 = 1", "collections.products.table: must be a text, not a list"),
    ("key = []", "collections.products.key: must name 1 to 4 columns, not 0"),
    (
        "key = ['a', 'b', 'c', 'd', 'e']",
        "collections.products.key: must name 1 to 4 columns, not 5",
    ),
    ("key = ['a', 'A']", "collections.products.key: must not name a column twice: \"A\""),
    ("key = ['a', 1]", "collections.products.key: must be a list of texts, not of 1"),
    (
        "key_type = 'int'",
        "collections.products.key_type: must be made of integer, text, uuid, objectid and bytes, \
         not \"int\"",
    ),
    (
        "key_type = ['text', 'text']",
        "collections.products.key_type: must name one type per column of the key: the key has 1",
    ),
    ("columns = []", "collections.products.columns: must name 1 to 2000 columns, not 0"),
    (
        "columns = ['a']\nexclude = ['b']",
        "collections.products.exclude: cannot be combined with columns",
    ),
    (
        "cache_control = \"no-cache\\r\\nX: y\"",
        "collections.products.cache_control: must be a header value",
    ),
    ("cache_control = ' x'", "collections.products.cache_control: must be a header value"),
    (
        "allow_min_position = true",
        "collections.products.allow_min_position: must not be true with source.watch or \
         source.feed = \"none\"",
    ),
    ("ttl = '0s'", "f.toml:4: collections.products.ttl: must be a time"),
    (
        "[collections.Big]",
        "collections.Big: the name of a collection must begin with a letter a to z",
    ),
    ("[collections.'a b']", "collections.\"a b\": the name of a collection"),
    ("[collections.1st]", "collections.1st: the name of a collection"),
    (
        "[collections]\nx = 1",
        "f.toml:5: collections.x: must be a table, [collections.x], not a number",
    ),
    (
        "[log]\nlevel = 'loud'",
        "log.level: must be \"info\" or \"error\" or \"warn\" or \"debug\" or \"trace\", not \
         \"loud\"",
    ),
    ("[log]\nformat = 'xml'", "log.format: must be \"text\" or \"json\", not \"xml\""),
    (
        "[log]\nformat = 'a$b'",
        "log.format: a dollar sign must begin ${VARIABLE}; write $$ for the sign itself; the value \
         is \"a$b\"",
    ),
];

/// Cases that need a file of their own.
pub(super) const BAD_FILES: &[(&str, &str)] = &[
    ("", "f.toml: source.url: is required"),
    ("[source]\nurl = 'sqlite:x'", "collections: there must be at least one"),
    (
        "[source]\nurl = 'sqlite:x'\n[collections]",
        "f.toml:3: collections: there must be at least one",
    ),
    ("collections = 3", "f.toml:1: collections: must be a table, [collections], not a number"),
    (
        "[source]\nurl = 'postgres://u:pw@h/db?nope=1'",
        "source.url: the connection string has the parameter `nope`",
    ),
    (
        "[source]\nurl = 'postgres://u@h/db'\nwatch = 'none'",
        "source.watch: is for sqlite: databases",
    ),
    (
        "[source]\nurl = 'postgres://u@h/db'\npublication = ''",
        "source.publication: must have 1 to 63 bytes",
    ),
    (
        "[source]\nurl = 'postgres://u@h/db'\nfeed_url = 'postgres://u@h:0x/db'",
        "source.feed_url: the connection string",
    ),
    (
        "[source]\nurl = 'sqlite:x'\nfeed_url = 'postgres://u@h/db'",
        "source.feed_url: is for postgres:, mysql: and mongodb: databases",
    ),
    ("[source]\nurl = 'oracle://h/db'", "the scheme \"oracle\" is unknown"),
    ("[source]\nurl = 'sqlite:a'\nserver_id = 3", "source.server_id: is for mysql: databases"),
    ("[source]\nurl = 'sqlite:a'\njson = 'plain'", "source.json: is for mongodb: databases"),
    (
        "[source]\nurl = 'mysql://h/db'\npublication = 'x'",
        "source.publication: is for postgres: databases",
    ),
    (
        "[source]\nurl = 'mysql://h/db'\nread_urls = ['mysql://h2/db']",
        "source.read_urls: is for postgres: databases, and url names another, where a read of a \
         replica does not prove",
    ),
    ("[source]\nurl = 'postgres://u@h/db'\nread_urls = ['mysql://h2/db']", "source.read_urls: "),
    (
        "[source]\nurl = 'postgres://u@h/db'\nfeed = 'none'\nread_urls = ['postgres://u@h2/db']",
        "source.read_urls: has no meaning with source.feed",
    ),
    ("[source]\nurl = 'sqlite:a'\nfeed = 'no'", "source.feed: must be"),
    (
        "[source]\nurl = 'sqlite:a'\nfeed = 'none'\n[collections.a]",
        "cache.ttl: must be set with source.feed",
    ),
    (
        "[source]\nurl = 'sqlite:a'\nfeed = 'none'\nwatch = 'none'",
        "source.watch: has no meaning with source.feed",
    ),
    (
        "[source]\nurl = 'sqlite:a'\nfeed = 'none'\n[cache]\nttl = '1m'\nwhen_stale = 'stale'",
        "cache.when_stale: has no meaning",
    ),
    ("[source]\nurl = 'redis://h'", "mongodb://host/database; the scheme \"redis\" is unknown"),
    ("[source]\nurl = 'shop.db'", "source.url: must begin with a scheme"),
    ("[source]\nurl = 'sqlite:'", "source.url: must name a file"),
    ("[source]\nurl = 'sqlite:dir/'", "source.url: must name a file"),
    ("[source]\nurl = 'sqlite::memory:'", "source.url: :memory: cannot be shared"),
    ("[source]\nurl = 'sqlite:x.db?mode=ro'", "source.url: must be sqlite: and a path alone"),
    ("[source]\nurl = 'sqlite://host/x.db'", "source.url: has no host in it"),
    ("[source]\nurl = '${NOPE}'", "source.url: the environment variable NOPE is not set"),
    ("[source]\nurl = 7", "source.url: must be a text, not 7"),
    (
        "[source]\nurl = 'sqlite:x'\nquery_keys = 10\n[collections.a]",
        "source.query_keys: must be at least limits.max_batch",
    ),
    (
        "[source]\nurl = 'sqlite:x'\nwatch = true\n[collections.a]",
        "source.watch: must be \"none\" or \"triggers\", not true",
    ),
    ("[source\nurl = 1", "f.toml:1: this is not TOML"),
    ("[source]\nurl = 'a'\nurl = 'b'", "f.toml:3: this is not TOML: duplicate key"),
    ("[source]\nurl = \"unclosed", "f.toml:2: this is not TOML"),
];
