-- Bids of a million euros and more, with the time of day and a count by a function in Python.
CREATE FUNCTION count_char AS 'bench.nexmark.functions.count_char' LANGUAGE PYTHON;
CREATE TABLE q14 (
  auction BIGINT, bidder BIGINT, price DECIMAL(23, 3), bidTimeType STRING, `dateTime` TIMESTAMP(3), extra STRING,
  c_counts BIGINT
) WITH ('topic' = 'nexmark-q14');

INSERT INTO q14
SELECT auction, bidder, 0.908 * price,
  CASE
    WHEN HOUR(`dateTime`) >= 8 AND HOUR(`dateTime`) <= 18 THEN 'dayTime'
    WHEN HOUR(`dateTime`) <= 6 OR HOUR(`dateTime`) >= 20 THEN 'nightTime'
    ELSE 'otherTime'
  END,
  `dateTime`, extra, count_char(extra, 'c')
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;
