-- The average closing price of the last ten auctions of each seller.
CREATE TABLE q6 (seller BIGINT, avg_price BIGINT) WITH ('topic' = 'nexmark-q6');

INSERT INTO q6
SELECT seller, AVG(price) OVER (PARTITION BY seller ORDER BY `dateTime` ROWS BETWEEN 10 PRECEDING AND CURRENT ROW)
FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY id, seller ORDER BY price DESC) AS rn
  FROM (
    SELECT a.id, a.seller, b.price, b.`dateTime`
    FROM auction AS a, bid AS b
    WHERE a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires
  )
)
WHERE rn <= 1;
