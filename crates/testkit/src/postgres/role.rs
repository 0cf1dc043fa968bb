//! The role that the service logs in as: the documented one of docs/postgres.md, without a
//! superuser's privileges.

use super::Server;

/// Name of the role.
pub const ROLE: &str = "hotrow";

/// SQL of a role that owns the tables, as the page allows: objects that a test creates later get
/// this owner at once, so that the role may complete its publication. The creation of a publication
/// requires `CREATE` on the database.
const OWNER_SQL: &str = "DO $$ BEGIN
      CREATE ROLE hotrow LOGIN REPLICATION;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
    DO $$ BEGIN
      EXECUTE format('GRANT CREATE ON DATABASE %I TO hotrow', current_database());
    END $$;
    CREATE FUNCTION public.give_to_hotrow() RETURNS event_trigger LANGUAGE plpgsql AS $$
      DECLARE created record;
      BEGIN
        FOR created IN SELECT * FROM pg_event_trigger_ddl_commands() LOOP
          CASE created.object_type
            WHEN 'table' THEN EXECUTE format('ALTER TABLE %s OWNER TO hotrow', \
            created.object_identity);
            WHEN 'view' THEN EXECUTE format('GRANT SELECT \
            ON %s TO hotrow', created.object_identity);
            WHEN 'publication' THEN EXECUTE format('ALTER PUBLICATION %s OWNER TO hotrow', \
            created.object_identity);
            ELSE NULL;
          END CASE;
        END LOOP;
      END $$;
    CREATE EVENT TRIGGER give_to_hotrow ON ddl_command_end
      WHEN TAG IN ('CREATE TABLE', 'CREATE TABLE AS', 'CREATE VIEW', 'CREATE PUBLICATION')
      EXECUTE FUNCTION public.give_to_hotrow();";

impl Server {
    /// Creates the role, where a share of the server has not yet, and makes it the owner of every
    /// table created in this database from now on.
    #[track_caller]
    pub fn make_owner_role(&self) {
        self.batch(OWNER_SQL);
    }

    /// Creates the role with exactly the documented grants on these tables, which belong to
    /// another.
    #[track_caller]
    pub fn make_reader_role(&self, tables: &[&str]) {
        let tables = tables.join(", ");
        self.batch(&format!(
            "CREATE ROLE {ROLE} LOGIN REPLICATION; GRANT SELECT ON {tables} TO {ROLE};
             CREATE PUBLICATION hotrow FOR TABLE {tables} WITH (publish_via_partition_root = true)"
        ));
    }

    /// Asserts that the role is not a superuser and has no other attributes.
    #[track_caller]
    pub fn assert_role_is_ordinary(&self) {
        let flags = "SELECT rolsuper, rolbypassrls, rolcreaterole, rolcreatedb FROM pg_roles \
                     WHERE rolname = 'hotrow'";
        assert_eq!(self.query(flags), "f|f|f|f");
    }
}
