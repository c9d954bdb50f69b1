-- The ten highest bids on each auction.
CREATE TABLE q19 (
  auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3), extra STRING,
  rank_number BIGINT, PRIMARY KEY (auction, rank_number) NOT ENFORCED
) WITH ('topic' = 'nexmark-q19');

INSERT INTO q19
SELECT *
FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS rn FROM bid)
WHERE rn <= 10;
