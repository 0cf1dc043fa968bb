//! Served collections, by name and by number. Numbers are fixed while the process runs: a
//! collection that leaves the configuration keeps its number, and no request reaches it.

use hotrow_cache::{Cache, Record};
use hotrow_measure::clock::Nanos;
use hotrow_representation::surrogate_key::{Sharing, SurrogateKeys};
use hotrow_source::ReadFailure;
use hotrow_telemetry::names::CollectionNames;
use hotrow_telemetry::outcome::CacheOutcome;
use hotrow_types::key::{CollectionId, Key, KeyError, KeySchema};
use hotrow_types::source::SourceId;
use http::HeaderValue;
use http::header::InvalidHeaderValue;

use crate::route::{ReadTarget, Router};

/// A collection, ready to serve.
#[derive(Debug)]
pub struct Collection {
    /// First path segment.
    pub name: String,
    /// The source that it is read from.
    pub source: SourceId,
    /// Schema of its keys.
    pub schema: KeySchema,
    /// `Cache-Control` of answers.
    pub cache_control: HeaderValue,
    /// See the configuration.
    pub allow_no_cache: bool,
    /// See the configuration.
    pub allow_min_position: bool,
    /// `true`: `Hotrow-Min-Position: now` is honoured.
    pub strict: bool,
    /// See the configuration.
    pub allow_fields: bool,
    /// See the configuration.
    pub priority: hotrow_admission::shed::Priority,
    /// See the configuration.
    pub allow_high_priority: bool,
    /// See the configuration.
    pub tenancy: Option<hotrow_config::Tenancy>,
    /// See the configuration.
    pub compression: Option<hotrow_config::Compression>,
    /// Surrogate keys of its answers; `None`: they have none.
    pub surrogate_keys: Option<SurrogateKeys>,
    /// See the configuration.
    pub is_removed: bool,
    /// What makes it an alias; `None`: it is none.
    pub alias: Option<Alias>,
}

impl Collection {
    /// Returns whether purges reach the answers to a request for one record. `text`: its id in the
    /// URL, behind which is a query if `has_query`.
    pub fn is_purgeable(
        &self,
        parsed: &Result<Key, KeyError>,
        (text, has_query): (&str, bool),
    ) -> bool {
        let Some(keys) = &self.surrogate_keys else { return false };
        if !keys.needs_canonical_url() {
            return true;
        }
        !has_query && parsed.as_ref().is_ok_and(|key| keys.is_canonical(key, text))
    }

    /// Returns what caches in front may do with a record. They may keep only what memory could: a
    /// later change of it is then delivered, and purges it.
    #[inline]
    pub fn sharing(
        &self,
        record: &Record,
        outcome: CacheOutcome,
        (is_purgeable, cache): (bool, &Cache<ReadFailure>),
    ) -> Sharing {
        if self.surrogate_keys.is_none() {
            return Sharing::AsConfigured;
        }
        let is_of_memory = match outcome {
            CacheOutcome::Hit | CacheOutcome::Miss | CacheOutcome::Coalesced => record.is_proven(),
            CacheOutcome::Stale | CacheOutcome::Bypass | CacheOutcome::None => false,
        };
        let is_kept = is_of_memory && is_purgeable && cache.is_current(self.source, Nanos::now());
        if is_kept { Sharing::UntilPurged } else { Sharing::Forbidden }
    }
}

/// Alias of a collection, ready to serve.
#[derive(Debug)]
pub struct Alias {
    /// See the configuration.
    pub settings: hotrow_config::Alias,
    /// Schema of the keys that it names.
    pub keys: KeySchema,
}

/// All collections.
#[derive(Debug)]
pub struct Collections {
    /// In the order of their numbers.
    list: Box<[Collection]>,
    /// Maps names to numbers.
    pub router: Router,
}

impl Collections {
    /// Numbers collections in the order of the configuration, which is also that of `schemas`.
    /// `seed`: for the table of names.
    ///
    /// # Errors
    /// If a configured `cache_control` is not a valid header value.
    pub fn new(
        configured: &[hotrow_config::Collection],
        schemas: &[KeySchema],
        seed: u64,
    ) -> Result<Self, InvalidHeaderValue> {
        let ready = |(collection, schema): (&hotrow_config::Collection, &KeySchema)| {
            Ok(Collection {
                name: collection.name.clone(),
                source: collection.source,
                schema: schema.clone(),
                cache_control: HeaderValue::from_str(&collection.cache_control)?,
                allow_no_cache: collection.allow_no_cache,
                allow_min_position: collection.allow_min_position,
                strict: collection.strict,
                allow_fields: collection.allow_fields,
                priority: collection.priority,
                allow_high_priority: collection.allow_high_priority,
                tenancy: collection.tenancy,
                compression: collection.compression.clone(),
                surrogate_keys: collection
                    .surrogates
                    .map(|settings| SurrogateKeys::new(&collection.name, schema, settings)),
                is_removed: collection.is_removed,
                alias: collection.alias.as_ref().map(|settings| Alias {
                    settings: settings.clone(),
                    keys: schemas[usize::from(settings.of.0)].clone(),
                }),
            })
        };
        let list: Box<[Collection]> =
            configured.iter().zip(schemas).map(ready).collect::<Result<_, _>>()?;
        let composite = list.iter().filter(|collection| collection.schema.types().len() > 1);
        let served = list.iter().filter(|own| !own.is_removed);
        let named = |own: &Collection| (own.name.clone(), own.schema.collection());
        let (aliases, own): (Vec<_>, Vec<_>) = served.partition(|own| own.alias.is_some());
        let alias = |own: &Collection| {
            let (name, alias) = named(own);
            let of = own.alias.as_ref().map(|alias| alias.settings.of)?;
            Some((name, ReadTarget { keys: alias, of }))
        };
        let router = Router::new(own.into_iter().map(named), seed)
            .with_composite_keys(
                composite.map(|own| (own.schema.collection(), own.schema.types().len())),
            )
            .with_aliases(aliases.into_iter().filter_map(alias));
        Ok(Self { list, router })
    }

    /// Serves the description of the API beside the collections.
    #[must_use]
    pub fn with_description(self, serves_description: bool) -> Self {
        Self { router: self.router.with_description(serves_description), ..self }
    }

    /// Returns the collection of that number.
    #[inline]
    pub fn get(&self, CollectionId(id): CollectionId) -> &Collection {
        &self.list[usize::from(id)]
    }

    /// Returns those that requests reach by names of their own.
    pub fn served(&self) -> impl Iterator<Item = (CollectionId, &Collection)> {
        let numbered = (0..).map(CollectionId).zip(&self.list);
        numbered.filter(|(_, own)| !own.is_removed && own.alias.is_none())
    }

    /// Returns the aliases of a collection.
    pub fn aliases_of(&self, id: CollectionId) -> impl Iterator<Item = CollectionId> {
        let is_alias = move |own: &Alias| own.settings.of == id;
        self.ids().filter(move |own| self.get(*own).alias.as_ref().is_some_and(is_alias))
    }

    /// Returns those of a source.
    pub fn of_source(&self, source: SourceId) -> impl Iterator<Item = CollectionId> {
        self.ids().filter(move |id| self.get(*id).source == source)
    }

    /// Returns all, in the order of their numbers.
    pub fn all(&self) -> &[Collection] {
        &self.list
    }

    /// Returns their names and sources.
    pub fn names(&self) -> CollectionNames {
        self.list.iter().map(|own| (own.name.clone(), own.source)).collect()
    }

    /// Returns their number.
    pub fn count(&self) -> usize {
        self.list.len()
    }

    /// Returns their numbers.
    pub fn ids(&self) -> impl Iterator<Item = CollectionId> + use<> {
        // At most 1,000 collections: see the configuration.
        (0..self.list.len() as u16).map(CollectionId)
    }
}
