//! Grants: what the holder of a role may read.
//!
//! A credential maps to a set of roles, which is one 64-bit number; a collection holds for each
//! right the set of roles that have it. A check is one `and`, whatever the number of roles.

use std::sync::Arc;

use hotrow_types::columns::Columns;
use hotrow_types::key::CollectionId;

/// Most roles of one service: they are bits of one number.
pub const ROLES_MAX: usize = 64;

/// Most rate classes of one service: they are bits of one number.
pub const RATE_CLASSES_MAX: usize = 64;

/// A set of roles, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles(u64);

/// A role as configured.
#[derive(Clone, Debug)]
pub struct Role {
    /// Its name in the configuration.
    pub name: String,
    /// Values of the token's role claim that name it.
    pub claim_values: Vec<String>,
    /// Collections whose records it may read.
    pub collections: Scope,
    /// Collections of which it reads only these columns.
    pub columns: Vec<(CollectionId, Columns)>,
    /// Whether `Cache-Control: no-cache` is honoured where the collection allows it.
    pub no_cache: bool,
    /// Whether `Hotrow-Min-Position` is honoured where the collection allows it.
    pub min_position: bool,
    /// Whether `Hotrow-Min-Position: now` is honoured where the collection allows it.
    pub strict: bool,
    /// Rate classes of its holders: rate limits may be for some of them only.
    pub rate_classes: RateClasses,
}

/// A set of rate classes, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateClasses(u64);

/// Collections of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All.
    All,
    /// These.
    Listed(Vec<CollectionId>),
}

/// Roles with rights on one collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectionGrants {
    read: Roles,
    no_cache: Roles,
    min_position: Roles,
    strict: Roles,
}

/// Roles that read some columns of one collection.
#[derive(Clone, Debug, Default)]
struct ColumnGrants {
    /// Roles that read all columns.
    whole: Roles,
    /// Other roles, each with its columns.
    narrow: Vec<(Roles, Arc<Columns>)>,
}

impl Scope {
    /// Returns whether the collection is one of them.
    pub fn contains(&self, id: CollectionId) -> bool {
        match self {
            Self::All => true,
            Self::Listed(ids) => ids.contains(&id),
        }
    }
}

impl ColumnGrants {
    /// Returns the columns that these roles may read; `None`: all.
    #[cold]
    fn columns(&self, roles: Roles) -> Option<Arc<Columns>> {
        if self.whole.intersects(roles) {
            return None;
        }
        let own = self.narrow.iter().filter(|(of, _)| of.intersects(roles)).map(|(_, own)| own);
        let union = |all: Arc<Columns>, more: Arc<Columns>| Arc::new(all.union(&more));
        Some(own.cloned().reduce(union).unwrap_or_default())
    }
}

/// Grants of all roles, by collection. Immutable.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    collections: Box<[CollectionGrants]>,
    /// Parallel to `collections`.
    columns: Box<[ColumnGrants]>,
    /// By role.
    rate_classes: Box<[RateClasses]>,
    /// Values of the role claim with their roles, in the order of the values.
    claim_values: Box<[(String, Roles)]>,
}

/// More roles than [`ROLES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there may be at most {ROLES_MAX} roles, not {0}")]
pub struct TooManyRoles(pub usize);

/// Defines the operations of a set whose members are bits of one number.
macro_rules! bit_set {
    ($set:ident) => {
        impl $set {
            /// Returns the set of one member. A number of 64 or more is no member.
            #[must_use]
            pub fn single(number: usize) -> Self {
                u32::try_from(number)
                    .ok()
                    .and_then(|bit| 1_u64.checked_shl(bit))
                    .map_or(Self(0), Self)
            }

            /// Returns the members of both sets.
            #[must_use]
            pub fn union(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Returns whether the sets have a member in common.
            #[inline]
            #[must_use]
            pub fn intersects(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }
        }
    };
}

bit_set!(Roles);
bit_set!(RateClasses);

impl Roles {
    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl CollectionGrants {
    /// Returns whether one of the roles may read records.
    #[inline]
    pub fn may_read(&self, roles: Roles) -> bool {
        self.read.intersects(roles)
    }

    /// Returns whether one of the roles may read and request a record past the cache.
    #[inline]
    pub fn may_bypass_cache(&self, roles: Roles) -> bool {
        self.no_cache.intersects(roles)
    }

    /// Returns whether one of the roles may read and name a least position.
    #[inline]
    pub fn may_require_position(&self, roles: Roles) -> bool {
        self.min_position.intersects(roles)
    }

    /// Returns whether one of the roles may read and require a strict answer.
    #[inline]
    pub fn may_require_strict(&self, roles: Roles) -> bool {
        self.strict.intersects(roles)
    }
}

impl Grants {
    /// Resolves roles, numbered in their order, for collections `0..collections`. Other collections
    /// in a role's scope are ignored.
    ///
    /// # Errors
    /// [`TooManyRoles`]
    pub fn new(roles: &[Role], collections: usize) -> Result<Self, TooManyRoles> {
        if roles.len() > ROLES_MAX {
            return Err(TooManyRoles(roles.len()));
        }
        let mut granted = vec![CollectionGrants::default(); collections];
        let mut columns = vec![ColumnGrants::default(); collections];
        let mut claim_values: Vec<(String, Roles)> = Vec::new();
        for (number, role) in roles.iter().enumerate() {
            let one = Roles::single(number);
            for (index, (grants, columns)) in granted.iter_mut().zip(&mut columns).enumerate() {
                let is_in_scope = match &role.collections {
                    Scope::All => true,
                    Scope::Listed(ids) => ids.iter().any(|id| usize::from(id.0) == index),
                };
                if is_in_scope {
                    grants.read = grants.read.union(one);
                    let add = |to: Roles, has: bool| if has { to.union(one) } else { to };
                    grants.no_cache = add(grants.no_cache, role.no_cache);
                    grants.min_position = add(grants.min_position, role.min_position);
                    grants.strict = add(grants.strict, role.strict);
                    match role.columns.iter().find(|(id, _)| usize::from(id.0) == index) {
                        None => columns.whole = columns.whole.union(one),
                        Some((_, own)) => columns.narrow.push((one, Arc::new(own.clone()))),
                    }
                }
            }
            for value in &role.claim_values {
                match claim_values.iter_mut().find(|(known, _)| known == value) {
                    Some((_, roles)) => *roles = roles.union(one),
                    None => claim_values.push((value.clone(), one)),
                }
            }
        }
        claim_values.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(Self {
            collections: granted.into_boxed_slice(),
            columns: columns.into_boxed_slice(),
            rate_classes: roles.iter().map(|role| role.rate_classes).collect(),
            claim_values: claim_values.into_boxed_slice(),
        })
    }

    /// Returns the grants on a collection; of an unknown one, none.
    #[inline]
    pub fn on(&self, CollectionId(id): CollectionId) -> CollectionGrants {
        self.collections.get(usize::from(id)).copied().unwrap_or_default()
    }

    /// Returns the columns that the roles may read of a collection; `None`: all. Roles that may not
    /// read the collection read no column.
    #[inline]
    pub fn columns(&self, id: CollectionId, roles: Roles) -> Option<Arc<Columns>> {
        self.limits(id)?.columns(roles)
    }

    /// Returns whether a role reads only some columns of a collection.
    pub fn limits_columns(&self, id: CollectionId) -> bool {
        self.limits(id).is_some()
    }

    #[inline]
    fn limits(&self, CollectionId(id): CollectionId) -> Option<&ColumnGrants> {
        self.columns.get(usize::from(id)).filter(|grants| !grants.narrow.is_empty())
    }

    /// Returns the rate classes of a holder of these roles: those of all of them.
    #[inline]
    pub fn rate_classes(&self, Roles(roles): Roles) -> RateClasses {
        let mut left = roles;
        let mut classes = RateClasses::default();
        while left != 0 {
            let role = left.trailing_zeros() as usize;
            classes = classes.union(self.rate_classes.get(role).copied().unwrap_or_default());
            left &= left - 1;
        }
        classes
    }

    /// Returns the roles that a value of the role claim names.
    pub fn roles_of(&self, claim_value: &str) -> Roles {
        let found =
            self.claim_values.binary_search_by(|(value, _)| value.as_str().cmp(claim_value));
        found.ok().and_then(|at| self.claim_values.get(at)).map_or(Roles(0), |(_, roles)| *roles)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(values: &[&str], collections: Scope, no_cache: bool, min_position: bool) -> Role {
        let claim_values = values.iter().map(|value| (*value).to_owned()).collect();
        let (columns, rate_classes) = (Vec::new(), RateClasses::default());
        let name = "reader".to_owned();
        let strict = no_cache;
        Role {
            name,
            claim_values,
            collections,
            columns,
            no_cache,
            min_position,
            strict,
            rate_classes,
        }
    }

    #[test]
    fn a_role_grants_what_it_lists() {
        let roles = [
            role(&["shop"], Scope::Listed(vec![CollectionId(0)]), false, false),
            role(&["internal", "shop"], Scope::Listed(vec![CollectionId(1)]), true, false),
            role(&["audit"], Scope::All, false, true),
        ];
        let grants = Grants::new(&roles, 2).expect("three roles");
        let (shop, internal, audit) = (Roles::single(0), Roles::single(1), Roles::single(2));
        let (first, second) = (grants.on(CollectionId(0)), grants.on(CollectionId(1)));
        assert!(first.may_read(shop) && !first.may_read(internal) && first.may_read(audit));
        assert!(!second.may_read(shop) && second.may_read(internal) && second.may_read(audit));
        assert!(!first.may_bypass_cache(shop.union(internal)), "not on this collection");
        assert!(second.may_bypass_cache(shop.union(internal)));
        assert!(second.may_require_strict(internal) && !second.may_require_strict(audit));
        assert!(!second.may_require_position(internal) && second.may_require_position(audit));
        assert!(!first.may_read(Roles::default()) && !second.may_read(Roles::default()));
        assert!(!grants.on(CollectionId(2)).may_read(audit), "no such collection");
        assert_eq!(grants.roles_of("shop"), shop.union(internal));
        assert_eq!(grants.roles_of("audit"), audit);
        assert!(!audit.is_empty());
        let contains = |scope: Scope| [0, 1].map(|id| scope.contains(CollectionId(id)));
        assert_eq!(contains(Scope::All), [true; 2]);
        assert_eq!(contains(Scope::Listed(vec![CollectionId(1)])), [false, true]);
        for unknown in ["", "Shop", "sho", "shop "] {
            assert!(grants.roles_of(unknown).is_empty(), "{unknown:?}");
        }
    }

    #[test]
    fn columns_of_several_roles_add_up_and_a_whole_grant_wins() {
        let narrow = |names: &[&str]| {
            let columns = vec![(CollectionId(0), Columns::new(names.iter().copied()))];
            Role { columns, ..role(&[], Scope::All, false, false) }
        };
        let roles = [narrow(&["id"]), narrow(&["name", "id"]), role(&[], Scope::All, false, false)];
        let grants = Grants::new(&roles, 2).expect("three roles");
        let [id, name, whole] = [0, 1, 2].map(Roles::single);
        let columns = |roles| grants.columns(CollectionId(0), roles).map(|own| (*own).clone());
        assert_eq!(columns(id), Some(Columns::new(["id"])));
        assert_eq!(columns(id.union(name)), Some(Columns::new(["id", "name"])));
        assert_eq!(columns(id.union(whole)), None);
        assert_eq!(columns(Roles::default()), Some(Columns::default()), "no role, no column");
        let other = CollectionId(1);
        assert_eq!(grants.columns(other, id), None, "a collection without such grants");
        assert!(grants.limits_columns(CollectionId(0)) && !grants.limits_columns(other));
    }

    #[test]
    fn a_holder_is_in_the_rate_classes_of_all_its_roles() {
        let in_class = |class| Role {
            rate_classes: RateClasses::single(class),
            ..role(&[], Scope::All, false, false)
        };
        let none = role(&[], Scope::All, false, false);
        let grants = Grants::new(&[in_class(0), none, in_class(63)], 1).expect("three roles");
        let (first, none, last) = (Roles::single(0), Roles::single(1), Roles::single(2));
        assert_eq!(grants.rate_classes(first), RateClasses::single(0));
        assert_eq!(grants.rate_classes(none), RateClasses::default());
        let both = grants.rate_classes(first.union(none).union(last));
        assert_eq!(both, RateClasses::single(0).union(RateClasses::single(63)));
        assert_eq!(grants.rate_classes(Roles::single(63)), RateClasses::default(), "no such role");
        assert!(both.intersects(RateClasses::single(63)) && !both.intersects(RateClasses(2)));
        assert_eq!(RateClasses::single(64), RateClasses::default());
    }

    #[test]
    fn there_are_at_most_64_roles() {
        let one = role(&["a"], Scope::All, false, false);
        let grants = Grants::new(&vec![one.clone(); ROLES_MAX], 1).expect("64 roles");
        assert!(grants.on(CollectionId(0)).may_read(Roles::single(63)));
        assert!(Roles::single(64).is_empty());
        let error = Grants::new(&vec![one; ROLES_MAX + 1], 1).map(|_| ());
        assert_eq!(error, Err(TooManyRoles(65)));
    }
}
