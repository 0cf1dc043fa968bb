//! The types of a table's columns, followed down to those whose binary form is known here.

use std::collections::HashMap;

use tokio_postgres::types::{Oid, Type};
use tokio_postgres::{Client, Error};

use super::super::json::{Field, Scalar, Shape};
use super::Select;
use super::catalog::query;

/// Types within types that are followed; deeper ones are asked for as the server's JSON.
const DEPTH_MAX: usize = 16;
/// Types looked up for one table.
const TYPES_MAX: usize = 1000;

/// What the catalogue says about types.
#[derive(Debug, Default)]
pub(super) struct Types {
    known: HashMap<Oid, Known>,
}

#[derive(Debug)]
struct Known {
    name: String,
    what: What,
}

#[derive(Debug)]
enum What {
    /// A base type; only those of the system are known by their name.
    Base {
        of_system: bool,
    },
    Enum,
    Domain(Oid),
    Array(Oid),
    Range(Oid),
    Multirange(Oid),
    Composite(Vec<(String, Oid)>),
    Other,
}

/// An array type is one whose element type names it; oidvector and the like only look so. Multiranges exist from
/// version 14 on; their type names the range through `pg_range`.
const TYPES_SQL: &str = "SELECT t.oid, t.typname::text, t.typtype::text, n.nspname = 'pg_catalog', t.typbasetype, \
    CASE WHEN e.typarray = t.oid THEN t.typelem ELSE 0 END, coalesce(r.rngsubtype, 0), \
    coalesce((SELECT (to_jsonb(m)->>'rngtypid')::oid FROM pg_range m \
      WHERE t.typtype = 'm' AND (to_jsonb(m)->>'rngmultitypid')::oid = t.oid), 0), \
    coalesce((SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a \
      WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped AND t.typtype = 'c'), '{}'), \
    coalesce((SELECT array_agg(a.atttypid ORDER BY a.attnum) FROM pg_attribute a \
      WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped AND t.typtype = 'c'), '{}') \
    FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace \
    LEFT JOIN pg_type e ON e.oid = t.typelem LEFT JOIN pg_range r ON r.rngtypid = t.oid \
    WHERE t.oid = ANY($1)";

/// Looks up the types and all that they are made of, a round trip for each level.
pub(super) async fn load(client: &Client, oids: impl Iterator<Item = Oid>) -> Result<Types, Error> {
    let mut types = Types::default();
    let mut wanted: Vec<Oid> = oids.collect();
    for _ in 0..DEPTH_MAX {
        wanted.sort_unstable();
        wanted.dedup();
        wanted.retain(|oid| !types.known.contains_key(oid));
        if wanted.is_empty() || types.known.len() + wanted.len() > TYPES_MAX {
            break;
        }
        let rows = query(client, TYPES_SQL, &[(&wanted, Type::OID_ARRAY)]).await?;
        wanted.clear();
        for row in rows {
            let (base, element, subtype, range): (Oid, Oid, Oid, Oid) =
                (row.try_get(4)?, row.try_get(5)?, row.try_get(6)?, row.try_get(7)?);
            let (names, members): (Vec<String>, Vec<Oid>) = (row.try_get(8)?, row.try_get(9)?);
            let what = match row.try_get::<_, &str>(2)? {
                "b" if element != 0 => What::Array(element),
                "b" => What::Base { of_system: row.try_get(3)? },
                "e" => What::Enum,
                "d" => What::Domain(base),
                "r" => What::Range(subtype),
                "m" => What::Multirange(range),
                "c" => What::Composite(names.into_iter().zip(members.iter().copied()).collect()),
                _ => What::Other,
            };
            wanted.extend([base, element, subtype, range].into_iter().filter(|oid| *oid != 0));
            wanted.extend(members);
            types.known.insert(row.try_get(0)?, Known { name: row.try_get(1)?, what });
        }
    }
    Ok(types)
}

impl Types {
    /// A type's name for a message.
    pub(super) fn name(&self, oid: Oid) -> &str {
        self.known.get(&oid).map_or("unknown", |known| known.name.as_str())
    }

    /// The name of a base type of the system, domains resolved.
    pub(super) fn base_name(&self, mut oid: Oid) -> Option<&str> {
        for _ in 0..DEPTH_MAX {
            let known = self.known.get(&oid)?;
            match known.what {
                What::Domain(base) => oid = base,
                What::Base { of_system: true } => return Some(&known.name),
                _ => return None,
            }
        }
        None
    }

    /// How to ask for a column of this type and how to read what comes.
    pub(super) fn shape(&self, oid: Oid) -> (Select, Shape) {
        match self.binary(oid, DEPTH_MAX) {
            Some(shape) => (Select::Plain, shape),
            None => match self.resolved(oid) {
                Some(What::Array(element)) if matches!(self.resolved(*element), Some(What::Base { .. })) => {
                    (Select::TextArray, Shape::Array(Box::new(Shape::Scalar(Scalar::Text))))
                }
                Some(What::Base { .. } | What::Other) | None => (Select::Text, Shape::Scalar(Scalar::Text)),
                Some(_) => (Select::ToJson, Shape::Scalar(Scalar::Json)),
            },
        }
    }

    /// What a type is, domains resolved.
    fn resolved(&self, mut oid: Oid) -> Option<&What> {
        for _ in 0..DEPTH_MAX {
            match &self.known.get(&oid)?.what {
                What::Domain(base) => oid = *base,
                what => return Some(what),
            }
        }
        None
    }

    /// The shape of a type whose whole binary form is known here.
    fn binary(&self, oid: Oid, depth: usize) -> Option<Shape> {
        let depth = depth.checked_sub(1)?;
        let known = self.known.get(&oid)?;
        let inner = |oid: &Oid| self.binary(*oid, depth).map(Box::new);
        Some(match &known.what {
            What::Base { of_system: true } => Shape::Scalar(scalar(&known.name)?),
            What::Base { of_system: false } | What::Other => return None,
            What::Enum => Shape::Scalar(Scalar::Text),
            What::Domain(base) => *inner(base)?,
            What::Array(element) => Shape::Array(inner(element)?),
            What::Range(subtype) => Shape::Range(inner(subtype)?),
            What::Multirange(range) => match *inner(range)? {
                Shape::Range(subtype) => Shape::Multirange(subtype),
                _ => return None,
            },
            What::Composite(members) => {
                let field = |(name, oid): &(String, Oid)| Some(Field::new(name, *oid, self.binary(*oid, depth)?));
                Shape::Composite(members.iter().map(field).collect::<Option<_>>()?)
            }
        })
    }
}

/// The base types of the system whose binary form is read here. The rest is asked for as text.
fn scalar(name: &str) -> Option<Scalar> {
    Some(match name {
        "bool" => Scalar::Bool,
        "int2" => Scalar::Int2,
        "int4" => Scalar::Int4,
        "int8" => Scalar::Int8,
        "oid" => Scalar::Oid,
        "float4" => Scalar::Float4,
        "float8" => Scalar::Float8,
        "numeric" => Scalar::Numeric,
        "text" | "varchar" | "bpchar" | "name" => Scalar::Text,
        "json" => Scalar::Json,
        "jsonb" => Scalar::Jsonb,
        "bytea" => Scalar::Bytea,
        "uuid" => Scalar::Uuid,
        "date" => Scalar::Date,
        "time" => Scalar::Time,
        "timetz" => Scalar::TimeTz,
        "timestamp" => Scalar::Timestamp,
        "timestamptz" => Scalar::TimestampTz,
        "interval" => Scalar::Interval,
        "inet" | "cidr" => Scalar::Inet,
        "macaddr" | "macaddr8" => Scalar::MacAddr,
        "bit" | "varbit" => Scalar::Bit,
        "pg_lsn" => Scalar::Lsn,
        _ => return None,
    })
}
