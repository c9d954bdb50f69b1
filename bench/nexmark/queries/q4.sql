-- The average of the closing prices in each category.
CREATE TABLE q4 (id BIGINT, final BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('topic' = 'nexmark-q4');

INSERT INTO q4
SELECT category, AVG(final)
FROM (
  SELECT MAX(b.price) AS final, a.category
  FROM auction AS a, bid AS b
  WHERE a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires
  GROUP BY a.id, a.category
)
GROUP BY category;
