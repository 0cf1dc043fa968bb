// Command pgx serves GET /products/:id straight from PostgreSQL, the way a good engineer writes it without a cache: net/http,
// pgx with its pool and its prepared statements, one query per request. It is a subject of bench/serve/cold.py, not a part
// of the product.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"net/http"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Product is one row; the fields are in the table's order.
type Product struct {
	ID          int64  `json:"id"`
	SKU         string `json:"sku"`
	Name        string `json:"name"`
	Category    string `json:"category"`
	PriceCents  int64  `json:"price_cents"`
	Stock       int64  `json:"stock"`
	Revision    int64  `json:"revision"`
	Description string `json:"description"`
}

const query = "SELECT id, sku, name, category, price_cents, stock, revision, description FROM products WHERE id = $1"
const readTimeout = 2 * time.Second

type service struct{ pool *pgxpool.Pool }

func (s *service) get(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		http.Error(w, "id must be an integer", http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	var p Product
	err = s.pool.QueryRow(ctx, query, id).
		Scan(&p.ID, &p.SKU, &p.Name, &p.Category, &p.PriceCents, &p.Stock, &p.Revision, &p.Description)
	if errors.Is(err, pgx.ErrNoRows) {
		http.Error(w, "no such product", http.StatusNotFound)
		return
	}
	if err != nil {
		log.Printf("reading product %d: %v", id, err)
		http.Error(w, "cannot read the database", http.StatusServiceUnavailable)
		return
	}
	body, err := json.Marshal(p)
	if err != nil {
		log.Printf("encoding product %d: %v", id, err)
		http.Error(w, "cannot encode the record", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	// A client that has gone is no fault of ours.
	_, _ = w.Write(body)
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:8080", "address")
	url := flag.String("url", "", "connection string")
	connections := flag.Int("pool", 16, "connections to the database")
	flag.Parse()

	config, err := pgxpool.ParseConfig(*url)
	if err != nil {
		return err
	}
	config.MaxConns, config.MinConns = int32(*connections), int32(*connections)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := pool.Ping(context.Background()); err != nil {
		return err
	}
	s := &service{pool: pool}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /products/{id}", s.get)
	return http.ListenAndServe(*listen, mux)
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
