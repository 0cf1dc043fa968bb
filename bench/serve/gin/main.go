// Command gin-ristretto serves GET /products/:id the way a good engineer writes it with common libraries: Gin for HTTP,
// Ristretto in front of database/sql. It is a subject of bench/serve/run.py, not a part of the product.
package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"log"
	"net/http"
	"strconv"

	"github.com/dgraph-io/ristretto/v2"
	"github.com/gin-gonic/gin"
	_ "github.com/mattn/go-sqlite3"
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

// entry is what a hit needs: nothing is encoded or hashed again.
type entry struct {
	body []byte
	etag string
}

type service struct {
	cache    *ristretto.Cache[int64, entry]
	find     *sql.Stmt
	position string
}

func (s *service) load(id int64) (entry, error) {
	var p Product
	row := s.find.QueryRow(id)
	if err := row.Scan(&p.ID, &p.SKU, &p.Name, &p.Category, &p.PriceCents, &p.Stock, &p.Revision, &p.Description); err != nil {
		return entry{}, err
	}
	body, err := json.Marshal(p)
	if err != nil {
		return entry{}, err
	}
	hash := fnv.New64a()
	hash.Write(body)
	return entry{body: body, etag: fmt.Sprintf(`"%016x"`, hash.Sum64())}, nil
}

func (s *service) get(c *gin.Context) {
	id, err := strconv.ParseInt(c.Param("id"), 10, 64)
	if err != nil {
		c.JSON(http.StatusBadRequest, gin.H{"title": "id must be an integer"})
		return
	}
	outcome := "hit"
	found, ok := s.cache.Get(id)
	if !ok {
		outcome = "miss"
		found, err = s.load(id)
		if errors.Is(err, sql.ErrNoRows) {
			c.JSON(http.StatusNotFound, gin.H{"title": "no such product"})
			return
		}
		if err != nil {
			log.Printf("reading product %d: %v", id, err)
			c.JSON(http.StatusServiceUnavailable, gin.H{"title": "cannot read the database"})
			return
		}
		s.cache.Set(id, found, int64(len(found.body)))
	}
	c.Header("ETag", found.etag)
	c.Header("Cache-Control", "no-cache")
	c.Header("Vary", "Accept-Encoding")
	c.Header("Age", "0")
	c.Header("Hotrow-Cache", outcome)
	c.Header("Hotrow-Position", s.position)
	c.Data(http.StatusOK, "application/json", found.body)
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:8080", "address")
	database := flag.String("database", "", "SQLite file with the table products")
	position := flag.String("position", "0", "text of the Hotrow-Position field, so that answers are as long as the other subjects'")
	flag.Parse()

	db, err := sql.Open("sqlite3", "file:"+*database+"?mode=ro")
	if err != nil {
		return err
	}
	defer db.Close()
	find, err := db.Prepare("SELECT id, sku, name, category, price_cents, stock, revision, description FROM products WHERE id = ?")
	if err != nil {
		return err
	}
	cache, err := ristretto.NewCache(&ristretto.Config[int64, entry]{NumCounters: 1_000_000, MaxCost: 256 << 20, BufferItems: 64})
	if err != nil {
		return err
	}
	s := &service{cache: cache, find: find, position: *position}
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(gin.Recovery())
	router.GET("/products/:id", s.get)
	return http.ListenAndServe(*listen, router)
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
