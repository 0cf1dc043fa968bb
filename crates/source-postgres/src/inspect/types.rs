//! Types of a table's columns, resolved down to those whose binary form is known here.

use std::collections::HashMap;

use tokio_postgres::types::{Oid, Type};
use tokio_postgres::{Client, Error};

use super::super::json::{Field, Scalar, Shape};
use super::catalog::{Column, query};
use super::{Select, Served};

/// Most levels of nested types; deeper ones are read as the server's JSON.
const DEPTH_MAX: usize = 16;
/// Most types looked up for one table.
const TYPES_MAX: usize = 1000;

/// Types as described by the catalogue.
#[derive(Debug, Default)]
pub(super) struct Types {
    known: HashMap<Oid, KnownType>,
}

#[derive(Debug)]
struct KnownType {
    schema: String,
    name: String,
    kind: TypeKind,
}

#[derive(Debug)]
enum TypeKind {
    /// A base type; only those of the system are known by their name.
    Base {
        of_system: bool,
    },
    Enum(Vec<String>),
    Domain(Oid),
    Array(Oid),
    Range(Oid),
    Multirange(Oid),
    Composite(Vec<(String, Oid)>),
    Other,
}

/// A base type or an enum.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredType<'a> {
    pub(super) schema: &'a str,
    pub(super) name: &'a str,
    /// The type is built into PostgreSQL.
    pub(super) of_system: bool,
    pub(super) is_enum: bool,
    /// Labels of an enum; otherwise empty.
    pub(super) labels: &'a [String],
}

/// An array type is one that its element type names as such, which excludes oidvector and the like.
/// Multiranges exist from version 14 on; their range is named in `pg_range`.
const TYPES_SQL: &str = "SELECT t.oid, t.typname::text, t.typtype::text, \
                         n.nspname = 'pg_catalog', t.typbasetype, \
    CASE WHEN e.typarray = t.oid THEN t.typelem ELSE 0 END, coalesce(r.rngsubtype, 0), \
    coalesce((SELECT (to_jsonb(m)->>'rngtypid')::oid FROM pg_range m \
      WHERE t.typtype = 'm' AND (to_jsonb(m)->>'rngmultitypid')::oid = t.oid), 0), \
    coalesce((SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a \
      WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped AND t.typtype = 'c'), \
      '{}'), \
    coalesce((SELECT array_agg(a.atttypid ORDER BY a.attnum) FROM pg_attribute a \
      WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped AND t.typtype = 'c'), \
      '{}'), \
    n.nspname::text, coalesce((SELECT array_agg(u.enumlabel::text ORDER BY u.enumsortorder) \
      FROM pg_enum u WHERE u.enumtypid = t.oid), '{}') \
    FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace \
    LEFT JOIN pg_type e ON e.oid = t.typelem LEFT JOIN pg_range r ON r.rngtypid = t.oid \
    WHERE t.oid = ANY($1)";

/// Looks up the types and all their components, with one round trip per level.
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
            let base: Oid = row.try_get(4)?;
            let element: Oid = row.try_get(5)?;
            let subtype: Oid = row.try_get(6)?;
            let range: Oid = row.try_get(7)?;
            let names: Vec<String> = row.try_get(8)?;
            let members: Vec<Oid> = row.try_get(9)?;
            let kind = match row.try_get::<_, &str>(2)? {
                "b" if element != 0 => TypeKind::Array(element),
                "b" => TypeKind::Base { of_system: row.try_get(3)? },
                "e" => TypeKind::Enum(row.try_get(11)?),
                "d" => TypeKind::Domain(base),
                "r" => TypeKind::Range(subtype),
                "m" => TypeKind::Multirange(range),
                "c" => {
                    TypeKind::Composite(names.into_iter().zip(members.iter().copied()).collect())
                }
                _ => TypeKind::Other,
            };
            wanted.extend([base, element, subtype, range].into_iter().filter(|oid| *oid != 0));
            wanted.extend(members);
            let schema = row.try_get(10)?;
            let name = row.try_get(1)?;
            types.known.insert(row.try_get(0)?, KnownType { schema, name, kind });
        }
    }
    Ok(types)
}

impl Types {
    /// Returns a type's name for a message.
    pub(super) fn name(&self, oid: Oid) -> &str {
        self.known.get(&oid).map_or("unknown", |known| known.name.as_str())
    }

    /// Returns the type that a key column stores, domains resolved.
    pub(super) fn stored(&self, mut oid: Oid) -> Option<StoredType<'_>> {
        for _ in 0..DEPTH_MAX {
            let KnownType { schema, name, kind } = self.known.get(&oid)?;
            let (of_system, labels): (_, &[String]) = match kind {
                TypeKind::Domain(base) => {
                    oid = *base;
                    continue;
                }
                TypeKind::Base { of_system } => (*of_system, &[]),
                TypeKind::Enum(labels) => (false, labels),
                _ => return None,
            };
            return Some(StoredType {
                schema,
                name,
                of_system,
                is_enum: matches!(kind, TypeKind::Enum(_)),
                labels,
            });
        }
        None
    }

    /// Returns a column as it is served, not as a tenant.
    pub(super) fn served(&self, column: &Column) -> Served {
        let (select, shape) = self.shape(column.type_oid);
        Served {
            name: column.name.clone(),
            type_oid: column.type_oid,
            select,
            shape,
            is_tenant: false,
            not_null: column.not_null,
        }
    }

    /// Returns the SELECT form of a column of this type and the layout of its values.
    fn shape(&self, oid: Oid) -> (Select, Shape) {
        match self.binary(oid, DEPTH_MAX) {
            Some(shape) => (Select::Plain, shape),
            None => match self.resolved(oid) {
                Some(TypeKind::Array(element))
                    if matches!(self.resolved(*element), Some(TypeKind::Base { .. })) =>
                {
                    (Select::TextArray, Shape::Array(Box::new(Shape::Scalar(Scalar::Text))))
                }
                Some(TypeKind::Base { .. } | TypeKind::Other) | None => {
                    (Select::Text, Shape::Scalar(Scalar::Text))
                }
                Some(_) => (Select::ToJson, Shape::Scalar(Scalar::Json)),
            },
        }
    }

    /// Returns whether the text or the JSON of a type, as the server makes it, depends on the names
    /// of objects or roles. Such a value may change without a change of its row.
    pub(super) fn reads_names(&self, oid: Oid) -> bool {
        self.binary(oid, DEPTH_MAX).is_none() && self.contains_names(oid, DEPTH_MAX)
    }

    fn contains_names(&self, oid: Oid, depth: usize) -> bool {
        let (Some(depth), Some(known)) = (depth.checked_sub(1), self.known.get(&oid)) else {
            return false;
        };
        let inner = |oid: &Oid| self.contains_names(*oid, depth);
        match &known.kind {
            TypeKind::Base { of_system } => {
                *of_system && (known.name == "aclitem" || known.name.starts_with("reg"))
            }
            TypeKind::Domain(of)
            | TypeKind::Array(of)
            | TypeKind::Range(of)
            | TypeKind::Multirange(of) => inner(of),
            TypeKind::Composite(members) => members.iter().any(|(_, of)| inner(of)),
            TypeKind::Enum(_) | TypeKind::Other => false,
        }
    }

    /// Returns a type, domains resolved.
    fn resolved(&self, mut oid: Oid) -> Option<&TypeKind> {
        for _ in 0..DEPTH_MAX {
            match &self.known.get(&oid)?.kind {
                TypeKind::Domain(base) => oid = *base,
                kind => return Some(kind),
            }
        }
        None
    }

    /// Returns the shape of a type if its whole binary form is known here.
    fn binary(&self, oid: Oid, depth: usize) -> Option<Shape> {
        let depth = depth.checked_sub(1)?;
        let known = self.known.get(&oid)?;
        let inner = |oid: &Oid| self.binary(*oid, depth).map(Box::new);
        Some(match &known.kind {
            TypeKind::Base { of_system: true } => Shape::Scalar(scalar(&known.name)?),
            TypeKind::Base { of_system: false } | TypeKind::Other => return None,
            TypeKind::Enum(labels) => Shape::Enum(labels.clone()),
            TypeKind::Domain(base) => *inner(base)?,
            TypeKind::Array(element) => Shape::Array(inner(element)?),
            TypeKind::Range(subtype) => Shape::Range(inner(subtype)?),
            TypeKind::Multirange(range) => match *inner(range)? {
                Shape::Range(subtype) => Shape::Multirange(subtype),
                _ => return None,
            },
            TypeKind::Composite(members) => {
                let field = |(name, oid): &(String, Oid)| {
                    Some(Field::new(name, *oid, self.binary(*oid, depth)?))
                };
                Shape::Composite(members.iter().map(field).collect::<Option<_>>()?)
            }
        })
    }
}

/// Returns the scalar of a base type of the system whose binary form is known here. The others are
/// read as text.
fn scalar(name: &str) -> Option<Scalar> {
    Some(match name {
        "bool" => Scalar::Bool,
        "int2" => Scalar::Int2,
        "int4" => Scalar::Int4,
        "int8" => Scalar::Int8,
        // The text of a reference is the present name of an object, which may change at any time
        // without a change of the row: its number is served.
        "oid" | "regclass" | "regproc" | "regprocedure" | "regoper" | "regoperator" | "regtype"
        | "regrole" | "regnamespace" | "regcollation" | "regconfig" | "regdictionary" => {
            Scalar::Oid
        }
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
