mod choice;
mod feed;
mod paint;
mod pictures;
mod terminal;
