-- A table, and what Hotrow needs: a role that reads it and follows its changes.
CREATE TABLE products (id bigint PRIMARY KEY, name text NOT NULL, price numeric NOT NULL);
INSERT INTO products SELECT id, 'Product ' || id, id * 1.5 FROM generate_series(1, 1000) AS id;
CREATE ROLE hotrow LOGIN REPLICATION PASSWORD 'only-for-trying';
GRANT SELECT ON products TO hotrow;
CREATE PUBLICATION hotrow FOR TABLE products;
