//! Views of records: answers with the columns that the sender may see, cut from the whole record on
//! the way out. One entry serves all. The entity tag of a view is the hash of the view: it
//! reveals nothing of the other columns, and a change of these alone does not change it. A view is
//! never compressed: an entry keeps compressed forms of the whole record only.

use bytes::Bytes;
use hotrow_cache::{Record, hash_of_body};
use hotrow_representation::record_form::RecordForm;
use hotrow_types::columns::Columns;

use crate::body::Body;
use crate::record_answer::OtherBody;

/// Returns a record as it is, and the view of it that is sent instead.
#[cold]
pub(crate) fn view_of(record: Record, columns: &Columns) -> (RecordForm, Option<Box<OtherBody>>) {
    let view = record.view(columns);
    let hash = hash_of_body(&view);
    (record.into(), Some(Box::new(OtherBody { body: Body::Bytes(Bytes::from(view)), hash })))
}
