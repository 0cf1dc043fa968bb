//! Names of rows: only properties that differ get a column or a place in a name.

use hotrow_report::numbers::number;
use hotrow_results::Row;

/// A property of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Property {
    Deployment,
    Load,
    Request,
    Proxy,
    Caching,
    Balancing,
    Connections,
    Keepalive,
    Rate,
    Condition(String),
}

impl Property {
    /// Returns the heading of its column.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Deployment => "Deployment",
            Self::Load => "Load",
            Self::Request => "Request",
            Self::Proxy => "Proxy",
            Self::Caching => "Caching",
            Self::Balancing => "Balancing",
            Self::Connections => "Connections",
            Self::Keepalive => "Keep-alive",
            Self::Rate => "Requested rate",
            Self::Condition(name) => name,
        }
    }

    /// Returns whether its column holds figures.
    pub(super) fn figures(&self) -> bool {
        matches!(self, Self::Connections | Self::Rate)
    }

    /// Returns a row's value.
    pub(super) fn of(&self, row: &Row) -> String {
        match self {
            Self::Deployment => row.deployment.clone(),
            Self::Load => row.load.clone(),
            Self::Request => row.request.clone(),
            Self::Proxy => row.proxy.clone(),
            Self::Caching => row.caching.clone(),
            Self::Balancing => row.balancing.clone(),
            Self::Connections => row.connections.to_string(),
            Self::Keepalive => if row.keepalive { "on" } else { "off" }.to_owned(),
            Self::Rate => {
                row.rate.map_or_else(|| "none".to_owned(), |rate| format!("{}/s", number(rate)))
            }
            Self::Condition(name) => {
                let found = row.conditions.iter().find(|(of, _)| of == name);
                found.map_or_else(|| "–".to_owned(), |(_, value)| value.clone())
            }
        }
    }

    /// Returns a row's value in words that need no heading.
    fn words(&self, row: &Row) -> String {
        match self {
            Self::Connections if row.connections == 1 => "1 connection".to_owned(),
            Self::Connections => format!("{} connections", row.connections),
            Self::Keepalive => format!("keep-alive {}", self.of(row)),
            Self::Rate => row.rate.map_or_else(|| "closed loop".to_owned(), |_| self.of(row)),
            Self::Deployment | Self::Load | Self::Request => self.of(row),
            Self::Proxy | Self::Caching | Self::Balancing | Self::Condition(_) => {
                format!("{}: {}", self.name(), self.of(row))
            }
        }
    }
}

/// Returns all properties in column order.
fn all(rows: &[&Row]) -> Vec<Property> {
    use Property as P;
    let mut all = vec![
        P::Deployment,
        P::Request,
        P::Proxy,
        P::Caching,
        P::Balancing,
        P::Connections,
        P::Keepalive,
        P::Rate,
    ];
    for (name, _) in rows.iter().flat_map(|row| &row.conditions) {
        let condition = Property::Condition(name.clone());
        if !all.contains(&condition) {
            all.push(condition);
        }
    }
    all
}

/// Returns the properties that differ between rows; always with the deployment.
pub(super) fn distinguishing(rows: &[&Row]) -> Vec<Property> {
    all(rows).into_iter().filter(|p| *p == Property::Deployment || !same(p, rows)).collect()
}

/// Returns the common properties of all rows in words, without the deployment and absent ones.
pub(super) fn common(rows: &[&Row]) -> Vec<String> {
    let Some(first) = rows.first() else { return Vec::new() };
    let shared = all(rows).into_iter().filter(|p| *p != Property::Deployment && same(p, rows));
    shared
        .filter(|p| *p == Property::Rate || p.of(first) != "none")
        .map(|p| p.words(first))
        .collect()
}

fn same(property: &Property, rows: &[&Row]) -> bool {
    rows.windows(2).all(|pair| property.of(pair[0]) == property.of(pair[1]))
}

/// Returns a short name of a row among `rows`: its deployment, its load if there are several, and
/// further properties that distinguish it.
pub(super) fn label(row: &Row, rows: &[&Row]) -> String {
    let alike: Vec<&Row> = rows
        .iter()
        .copied()
        .filter(|r| r.deployment == row.deployment && r.load == row.load)
        .collect();
    let own = [Property::Connections, Property::Keepalive, Property::Rate].into_iter();
    let own = own.chain(all(rows).into_iter().filter(|p| matches!(p, Property::Condition(_))));
    let mut parts = vec![row.deployment.clone()];
    if !same(&Property::Load, rows) && row.load != row.deployment {
        parts.push(row.load.clone());
    }
    parts.extend(own.filter(|p| !same(p, &alike)).map(|p| p.words(row)));
    parts.join(", ")
}
