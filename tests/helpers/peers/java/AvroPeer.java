import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Scanner;
import java.util.UUID;
import org.apache.avro.Conversions;
import org.apache.avro.LogicalType;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Schema;
import org.apache.avro.SchemaNormalization;
import org.apache.avro.data.TimeConversions;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericEnumSymbol;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.IndexedRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.avro.message.BinaryMessageDecoder;
import org.apache.avro.message.BinaryMessageEncoder;
import org.apache.avro.message.SchemaStore;
import org.apache.avro.util.TimePeriod;

/**
 * Java's own Avro for the interoperability tests: a JSON object a line on standard input and one on standard output.
 *
 * <pre>
 * {"do":"decode", "writer":SCHEMA, "reader":SCHEMA|null, "framing":"bare"|"single_object", "bodies":[HEX...]}
 * {"do":"generate", "schema":SCHEMA, "seed":N, "count":N}
 * {"do":"fingerprint", "schema":SCHEMA}
 * </pre>
 *
 * The first two answer with the values, and with the values encoded by Java: {"values":[...], "bare":[HEX...],
 * "single_object":[HEX...]}. A value is JSON; what JSON does not tell apart is text with a mark: "s:" string, "e:" enum,
 * "b:" bytes and fixed, "f:" float and double, and a logical type's own as Java's classes have it.
 */
public final class AvroPeer {
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    private static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern("HH:mm:ss.SSSSSS");
    private static final DateTimeFormatter DATE_TIME = DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss.SSSSSS");
    private static final GenericData DATA = new GenericData();

    static {
        DATA.addLogicalTypeConversion(new Conversions.DecimalConversion());
        DATA.addLogicalTypeConversion(new Conversions.UUIDConversion());
        DATA.addLogicalTypeConversion(new Conversions.DurationConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.DateConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimeMillisConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimeMicrosConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimestampMillisConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimestampMicrosConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.LocalTimestampMillisConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.LocalTimestampMicrosConversion());
    }

    public static void main(String[] args) throws IOException {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        out.println("{\"ready\":\"" + System.getProperty("java.version") + "\"}");
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
        while (lines.hasNextLine()) {
            ObjectNode answer;
            try {
                answer = run(MAPPER.readTree(lines.nextLine()));
            } catch (Exception | StackOverflowError error) {
                answer = NODES.objectNode().put("error", error.toString());
            }
            out.println(MAPPER.writeValueAsString(answer));
        }
    }

    private static ObjectNode run(JsonNode asked) throws IOException {
        switch (asked.get("do").asText()) {
            case "decode":
                return decode(asked);
            case "generate":
                return generate(asked);
            case "fingerprint":
                Schema schema = schema(asked.get("schema"));
                ByteBuffer bytes = ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN);
                bytes.putLong(SchemaNormalization.parsingFingerprint64(schema));
                return NODES.objectNode()
                        .put("fingerprint", hex(bytes.array()))
                        .put("canonical", SchemaNormalization.toParsingForm(schema));
            default:
                throw new IllegalArgumentException("asked for what it does not know");
        }
    }

    private static ObjectNode decode(JsonNode asked) throws IOException {
        Schema writer = schema(asked.get("writer"));
        Schema reader = asked.hasNonNull("reader") ? schema(asked.get("reader")) : writer;
        List<Object> values = new ArrayList<>();
        for (JsonNode body : asked.get("bodies")) {
            byte[] bytes = bytes(body.asText());
            values.add(asked.get("framing").asText().equals("bare")
                    ? decodeBare(bytes, writer, reader)
                    : decodeSingleObject(bytes, writer, reader));
        }
        return answer(reader, values);
    }

    private static Object decodeBare(byte[] bytes, Schema writer, Schema reader) throws IOException {
        BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(bytes, null);
        Object value = new GenericDatumReader<>(writer, reader, DATA).read(null, decoder);
        if (!decoder.isEnd()) {
            throw new IOException("bytes are left behind the value");
        }
        return value;
    }

    private static Object decodeSingleObject(byte[] bytes, Schema writer, Schema reader) throws IOException {
        SchemaStore.Cache store = new SchemaStore.Cache();
        store.addSchema(writer);
        InputStream stream = new ByteArrayInputStream(bytes);
        return new BinaryMessageDecoder<>(DATA, reader, store).decode(stream, null);
    }

    private static ObjectNode generate(JsonNode asked) throws IOException {
        Schema schema = schema(asked.get("schema"));
        Random random = new Random(asked.get("seed").asLong());
        List<Object> values = new ArrayList<>();
        for (int i = asked.get("count").asInt(); i > 0; i--) {
            values.add(new Generator(random).of(schema, 0));
        }
        return answer(schema, values);
    }

    private static ObjectNode answer(Schema schema, List<Object> values) throws IOException {
        ObjectNode answer = NODES.objectNode();
        ArrayNode shown = answer.putArray("values");
        ArrayNode bare = answer.putArray("bare");
        ArrayNode singleObject = answer.putArray("single_object");
        for (Object value : values) {
            shown.add(shown(value));
            ByteArrayOutputStream stream = new ByteArrayOutputStream();
            BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(stream, null);
            new GenericDatumWriter<>(schema, DATA).write(value, encoder);
            encoder.flush();
            bare.add(hex(stream.toByteArray()));
            stream.reset();
            new BinaryMessageEncoder<>(DATA, schema).encode(value, stream);
            singleObject.add(hex(stream.toByteArray()));
        }
        return answer;
    }

    /** A value by its class, so that what Java takes a logical type for is shown, and not what the schema says. */
    private static JsonNode shown(Object value) {
        if (value == null) {
            return NODES.nullNode();
        } else if (value instanceof Boolean) {
            return NODES.booleanNode((Boolean) value);
        } else if (value instanceof Integer || value instanceof Long) {
            return NODES.numberNode(((Number) value).longValue());
        } else if (value instanceof Collection) {
            ArrayNode items = NODES.arrayNode();
            ((Collection<?>) value).forEach(item -> items.add(shown(item)));
            return items;
        } else if (value instanceof Map) {
            ObjectNode entries = NODES.objectNode();
            ((Map<?, ?>) value).forEach((key, each) -> entries.set(key.toString(), shown(each)));
            return entries;
        } else if (value instanceof IndexedRecord) {
            IndexedRecord record = (IndexedRecord) value;
            ObjectNode fields = NODES.objectNode();
            record.getSchema().getFields().forEach(each -> fields.set(each.name(), shown(record.get(each.pos()))));
            return fields;
        }
        return NODES.textNode(marked(value));
    }

    private static String marked(Object value) {
        if (value instanceof Float || value instanceof Double) {
            return "f:" + Double.toHexString(((Number) value).doubleValue());
        } else if (value instanceof CharSequence) {
            return "s:" + value;
        } else if (value instanceof GenericEnumSymbol) {
            return "e:" + value;
        } else if (value instanceof ByteBuffer) {
            ByteBuffer buffer = ((ByteBuffer) value).duplicate();
            byte[] bytes = new byte[buffer.remaining()];
            buffer.get(bytes);
            return "b:" + hex(bytes);
        } else if (value instanceof GenericFixed) {
            return "b:" + hex(((GenericFixed) value).bytes());
        } else if (value instanceof BigDecimal) {
            return "decimal:" + ((BigDecimal) value).unscaledValue() + "e" + -((BigDecimal) value).scale();
        } else if (value instanceof LocalDate) {
            return "date:" + value;
        } else if (value instanceof LocalTime) {
            return "time:" + TIME.format((LocalTime) value);
        } else if (value instanceof Instant) {
            return "instant:" + DATE_TIME.format(((Instant) value).atOffset(ZoneOffset.UTC)) + "+00:00";
        } else if (value instanceof LocalDateTime) {
            return "local:" + DATE_TIME.format((LocalDateTime) value);
        } else if (value instanceof UUID) {
            return "uuid:" + value;
        } else if (value instanceof TimePeriod) {
            TimePeriod period = (TimePeriod) value;
            return "duration:" + period.get(ChronoUnit.MONTHS) + "," + period.get(ChronoUnit.DAYS) + ","
                    + period.get(ChronoUnit.MILLIS);
        }
        throw new IllegalArgumentException("a value of " + value.getClass());
    }

    private static Schema schema(JsonNode text) {
        return new Schema.Parser().parse(text.asText());
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte each : bytes) {
            text.append(Character.forDigit(each >> 4 & 15, 16)).append(Character.forDigit(each & 15, 16));
        }
        return text.toString();
    }

    private static byte[] bytes(String hex) {
        byte[] bytes = new byte[hex.length() / 2];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        }
        return bytes;
    }

    /** Random values, with those at the edges often; dates are of the years 1 to 9999, which Python has. */
    private static final class Generator {
        private static final int DEEP = 4;
        private static final long FIRST_DAY = LocalDate.of(1, 1, 1).toEpochDay();
        private static final long END_DAY = LocalDate.of(10000, 1, 1).toEpochDay();
        private static final long DAY_MICROS = 86_400_000_000L;
        private static final String[] PIECES = {"", "a", "Zürich", "省", "\ud83d\ude80", "\u0000", "\"\\\n", "\uffff"};
        private static final double[] DOUBLES = {
            0.0, -0.0, Double.NaN, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY, Double.MIN_VALUE, Double.MAX_VALUE,
        };
        private static final float[] FLOATS = {
            0f, -0f, Float.NaN, Float.POSITIVE_INFINITY, Float.NEGATIVE_INFINITY, Float.MIN_VALUE, Float.MAX_VALUE,
        };
        private static final long[] LONGS = {0, -1, 1, 63, 64, -64, -65, Long.MIN_VALUE, Long.MAX_VALUE};
        private static final int[] INTS = {0, -1, 1, 63, 64, -64, -65, Integer.MIN_VALUE, Integer.MAX_VALUE};

        private final Random random;

        Generator(Random random) {
            this.random = random;
        }

        Object of(Schema schema, int depth) {
            LogicalType logical = schema.getLogicalType();
            if (logical != null && DATA.getConversionFor(logical) != null) {
                return ofLogical(schema, logical);
            }
            boolean atEdge = random.nextInt(3) == 0;
            switch (schema.getType()) {
                case NULL:
                    return null;
                case BOOLEAN:
                    return random.nextBoolean();
                case INT:
                    return atEdge ? INTS[random.nextInt(INTS.length)] : random.nextInt();
                case LONG:
                    return atEdge ? LONGS[random.nextInt(LONGS.length)] : random.nextLong() >> random.nextInt(64);
                case FLOAT:
                    return atEdge ? FLOATS[random.nextInt(FLOATS.length)] : (float) random.nextGaussian();
                case DOUBLE:
                    return atEdge ? DOUBLES[random.nextInt(DOUBLES.length)] : random.nextGaussian();
                case STRING:
                    return text();
                case BYTES:
                    return ByteBuffer.wrap(bytes(random.nextInt(4)));
                case FIXED:
                    return new GenericData.Fixed(schema, bytes(schema.getFixedSize()));
                case ENUM:
                    List<String> symbols = schema.getEnumSymbols();
                    return new GenericData.EnumSymbol(schema, symbols.get(random.nextInt(symbols.size())));
                case UNION:
                    List<Schema> types = schema.getTypes();
                    boolean mayEnd = depth > DEEP && types.contains(Schema.create(Schema.Type.NULL));
                    return mayEnd ? null : of(types.get(random.nextInt(types.size())), depth + 1);
                default:
                    return ofParts(schema, depth);
            }
        }

        private Object ofParts(Schema schema, int depth) {
            int size = depth > DEEP ? 0 : random.nextInt(4);
            if (schema.getType() == Schema.Type.ARRAY) {
                GenericData.Array<Object> items = new GenericData.Array<>(size, schema);
                for (int i = 0; i < size; i++) {
                    items.add(of(schema.getElementType(), depth + 1));
                }
                return items;
            } else if (schema.getType() == Schema.Type.MAP) {
                Map<String, Object> entries = new HashMap<>();
                for (int i = 0; i < size; i++) {
                    entries.put(text(), of(schema.getValueType(), depth + 1));
                }
                return entries;
            }
            GenericData.Record record = new GenericData.Record(schema);
            schema.getFields().forEach(field -> record.put(field.pos(), of(field.schema(), depth + 1)));
            return record;
        }

        private Object ofLogical(Schema schema, LogicalType logical) {
            long days = FIRST_DAY + (long) (random.nextDouble() * (END_DAY - FIRST_DAY));
            days = random.nextInt(4) > 0 ? days : random.nextBoolean() ? FIRST_DAY : END_DAY - 1;
            boolean isOfMillis = logical.getName().endsWith("-millis");
            long micros = random.nextInt(4) == 0 ? DAY_MICROS - 1 : (long) (random.nextDouble() * DAY_MICROS);
            LocalTime time = LocalTime.ofNanoOfDay(micros * 1000);
            time = time.truncatedTo(isOfMillis ? ChronoUnit.MILLIS : ChronoUnit.MICROS);
            LocalDate date = LocalDate.ofEpochDay(days);
            switch (logical.getName()) {
                case "decimal":
                    LogicalTypes.Decimal decimal = (LogicalTypes.Decimal) logical;
                    BigInteger limit = BigInteger.TEN.pow(decimal.getPrecision());
                    BigInteger number = new BigInteger(limit.bitLength() + 1, random).mod(limit);
                    return new BigDecimal(random.nextBoolean() ? number : number.negate(), decimal.getScale());
                case "uuid":
                    return new UUID(random.nextLong(), random.nextLong());
                case "duration":
                    return TimePeriod.of(count(), count(), count());
                case "date":
                    return date;
                case "time-millis":
                case "time-micros":
                    return time;
                case "timestamp-millis":
                case "timestamp-micros":
                    return date.atTime(time).toInstant(ZoneOffset.UTC);
                default:
                    return date.atTime(time);
            }
        }

        /** Of a duration: 0 to 2^32 - 1. */
        private long count() {
            return random.nextInt(4) == 0 ? 0xffffffffL : random.nextInt(1 << random.nextInt(31));
        }

        private String text() {
            StringBuilder text = new StringBuilder();
            for (int i = random.nextInt(4); i > 0; i--) {
                text.append(PIECES[random.nextInt(PIECES.length)]);
            }
            return text.toString();
        }

        private byte[] bytes(int size) {
            byte[] bytes = new byte[size];
            random.nextBytes(bytes);
            return bytes;
        }
    }
}
