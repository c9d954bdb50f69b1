-- The highest bids of each ten seconds.
CREATE TABLE q7 (auction BIGINT, bidder BIGINT, price BIGINT, `dateTime` TIMESTAMP(3), extra STRING)
WITH ('topic' = 'nexmark-q7');

INSERT INTO q7
SELECT b.auction, b.bidder, b.price, b.`dateTime`, b.extra
FROM bid AS b
JOIN (
  SELECT MAX(price) AS most, window_end AS endtime
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND))
  GROUP BY window_start, window_end
) AS highest
ON b.price = highest.most
WHERE b.`dateTime` BETWEEN highest.endtime - INTERVAL '10' SECOND AND highest.endtime;
