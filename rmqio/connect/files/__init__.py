"""Files of rows: lines of JSON, CSV, Parquet and Avro."""
