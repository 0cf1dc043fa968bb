//! One generated product: the same for the same id, on every machine.

use std::fmt::Write;

use hotrow_measure::random::SplitMix64;

const MATERIALS: [&str; 12] = [
    "Walnut", "Oak", "Steel", "Linen", "Wool", "Glass", "Copper", "Bamboo", "Leather", "Ceramic",
    "Cork", "Canvas",
];
const STYLES: [&str; 12] = [
    "Compact", "Classic", "Foldable", "Slim", "Heavy", "Travel", "Nordic", "Rustic", "Modern",
    "Everyday", "Studio", "Garden",
];
/// Categories, each with its product names.
const CATEGORIES: [(&str, [&str; 6]); 8] = [
    ("Lighting", ["Desk Lamp", "Floor Lamp", "Lantern", "Wall Light", "Night Light", "Pendant"]),
    ("Furniture", ["Chair", "Stool", "Side Table", "Bookcase", "Bench", "Cabinet"]),
    ("Kitchen", ["Kettle", "Cutting Board", "Mixing Bowl", "Pan", "Jug", "Knife Block"]),
    ("Office", ["Notebook", "Pen Tray", "Letter Rack", "Desk Pad", "Stapler", "Clock"]),
    ("Outdoor", ["Tent", "Hammock", "Water Bottle", "Picnic Rug", "Lunch Box", "Cool Bag"]),
    ("Textiles", ["Blanket", "Cushion", "Curtain", "Bath Towel", "Table Runner", "Throw"]),
    ("Storage", ["Basket", "Crate", "Shoe Rack", "Hook Rail", "Jar", "Tool Box"]),
    ("Children", ["Building Set", "Rocking Horse", "Puzzle", "Night Lamp", "Easel", "Toy Chest"]),
];
const BRANDS: [&str; 10] = [
    "Nordhaven",
    "Brightwell",
    "Alder & Sons",
    "Kestrel",
    "Mirabel",
    "Tolvan",
    "Fernweh",
    "Quarry Lane",
    "Ostro",
    "Hillcrest",
];
const CURRENCIES: [&str; 4] = ["EUR", "USD", "GBP", "CHF"];
const WORDS: &str = "made by hand with care for daily use light and sturdy easy to clean fits every \
    home a quiet companion built last from local wood packed without plastic ready in two minutes";

/// Bytes of a product as JSON: most products, one in a thousand, one in ten thousand.
const USUAL_BYTES: std::ops::Range<u32> = 285..356;
const LONG_BYTES: u32 = 1_200;
const HUGE_BYTES: u32 = 20_000;
/// JSON around the values: names, quotes, colons, commas, braces, and the numbers' usual digits.
const FRAME_BYTES: usize = 178;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Product {
    pub(super) id: u32,
    pub(super) sku: String,
    pub(super) name: String,
    pub(super) category: &'static str,
    pub(super) brand: &'static str,
    pub(super) price_cents: u32,
    pub(super) currency: &'static str,
    pub(super) stock: u32,
    pub(super) rating: f64,
    pub(super) updated_at: String,
    pub(super) description: String,
}

impl Product {
    pub(super) fn generate(id: u32) -> Self {
        let random = &mut Random::new(u64::from(id));
        let (category, things) = CATEGORIES[random.below(CATEGORIES.len() as u32) as usize];
        let thing = random.pick(&things);
        let sku = format!("{}-{id:07}", category[..3].to_ascii_uppercase());
        let name = format!("{} {} {thing}", random.pick(&STYLES), random.pick(&MATERIALS));
        let brand = random.pick(&BRANDS);
        let bytes = match id {
            _ if id.is_multiple_of(10_000) => HUGE_BYTES,
            _ if id % 1_000 == 500 => LONG_BYTES,
            _ => USUAL_BYTES.start + random.below(USUAL_BYTES.end - USUAL_BYTES.start),
        };
        let others = FRAME_BYTES + sku.len() + name.len() + category.len() + brand.len();
        let description = description(random, (bytes as usize).saturating_sub(others));
        Self {
            id,
            sku,
            name,
            category,
            brand,
            price_cents: price_cents(random),
            currency: random.pick(&CURRENCIES),
            stock: random.below(1_000),
            rating: f64::from(10 + random.below(41)) / 10.0,
            updated_at: moment(random),
            description,
        }
    }
}

/// Returns a price with a usual ending.
pub(super) fn price_cents(random: &mut Random) -> u32 {
    (1 + random.below(300)) * 100 + [0, 49, 90, 95, 99][random.below(5) as usize]
}

/// Returns a moment of the year 2025, in UTC.
fn moment(random: &mut Random) -> String {
    let month = 1 + random.below(12);
    let day = 1 + random.below(28);
    let h = random.below(24);
    let m = random.below(60);
    let s = random.below(60);
    let ms = random.below(1000);
    format!("2025-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{ms:03}Z")
}

/// Returns plain sentences of about `bytes` bytes.
fn description(random: &mut Random, bytes: usize) -> String {
    let words: Vec<&str> = WORDS.split(' ').collect();
    let mut text = String::with_capacity(bytes + 16);
    let mut begins = true;
    while text.len() + 1 < bytes {
        let word = random.pick(&words);
        if begins {
            // Words are ASCII.
            let _ = write!(text, "{}{}", word[..1].to_ascii_uppercase(), &word[1..]);
        } else {
            text.push_str(word);
        }
        begins = random.below(9) == 0;
        text.push_str(if begins { ". " } else { " " });
    }
    text.truncate(text.trim_end_matches([' ', '.']).len());
    text.push('.');
    text
}

/// Numbers that are the same on every machine and with every version of a library, as the
/// demonstration's data must be.
pub(super) struct Random(SplitMix64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(SplitMix64(seed))
    }

    /// Returns a number below `bound`, which is at least 1.
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        // Below `bound`, which fits.
        self.0.below(bound.into()) as u32
    }

    /// Returns one item of a list that is not empty.
    pub(super) fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len() as u32) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(p: &Product) -> String {
        serde_json::json!({
            "id": p.id, "sku": p.sku, "name": p.name, "category": p.category, "brand": p.brand,
            "price_cents": p.price_cents, "currency": p.currency, "stock": p.stock,
            "rating": p.rating, "updated_at": p.updated_at, "description": p.description,
        })
        .to_string()
    }

    #[test]
    fn sizes_are_what_the_documentation_says() {
        let mut lengths: Vec<usize> =
            (1..=super::super::PRODUCTS).map(|id| json(&Product::generate(id)).len()).collect();
        let mean = lengths.iter().sum::<usize>() as f64 / lengths.len() as f64;
        assert!((310.0..335.0).contains(&mean), "mean {mean}");
        let near = |bytes: usize, lengths: &[usize]| {
            lengths.iter().filter(|l| l.abs_diff(bytes) < bytes / 10).count()
        };
        assert_eq!((near(1_200, &lengths), near(20_000, &lengths)), (100, 10));
        lengths.sort_unstable();
        let low = lengths[0];
        let median = lengths[50_000];
        let high = lengths[99_800];
        assert!(low > 260 && (310..330).contains(&median) && high < 390, "{low} {median} {high}");
    }

    #[test]
    fn a_product_is_always_the_same_and_unlike_the_next() {
        assert_eq!(Product::generate(4711), Product::generate(4711));
        let a = Product::generate(1);
        let b = Product::generate(2);
        assert!(a.sku != b.sku && a.description != b.description);
        assert!(
            !a.name.is_empty()
                && a.description.ends_with('.')
                && a.rating >= 1.0
                && a.rating <= 5.0
        );
    }

    #[test]
    fn numbers_spread_below_their_bound() {
        let mut random = Random::new(1);
        let mut seen = [0; 10];
        for _ in 0..10_000 {
            seen[random.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|n| (800..1200).contains(n)), "{seen:?}");
    }
}
