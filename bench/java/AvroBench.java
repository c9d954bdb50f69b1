import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Scanner;
import org.apache.avro.Conversions;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;

/**
 * Java's own Avro for the benchmark: AvroBench SCHEMA_FILE BODIES_FILE, then one command a line on standard input, one
 * JSON object a line on standard output. Files of bodies have the count, and before each body its size.
 *
 * <pre>
 * decode ROUNDS    bytes to a GenericRecord each, all bodies so many times
 * encode ROUNDS    those records to bytes
 * write FILE       what comes of both, to be checked
 * </pre>
 *
 * Decimals become BigDecimal, as Python's side makes them Decimal. Decoder and encoder are used again, as Java's users
 * do; records and byte arrays are new.
 */
public final class AvroBench {
    private final byte[][] bodies;
    private final Object[] values;
    private final GenericDatumReader<Object> reader;
    private final GenericDatumWriter<Object> writer;
    private final ByteArrayOutputStream stream = new ByteArrayOutputStream();
    private BinaryDecoder decoder;
    private BinaryEncoder encoder;
    /** So that the compiler leaves nothing out. */
    private Object last;

    private AvroBench(Path schemaFile, Path bodiesFile) throws IOException {
        Schema schema = new Schema.Parser().parse(Files.readString(schemaFile));
        GenericData data = new GenericData();
        data.addLogicalTypeConversion(new Conversions.DecimalConversion());
        reader = new GenericDatumReader<>(schema, schema, data);
        writer = new GenericDatumWriter<>(schema, data);
        ByteBuffer content = ByteBuffer.wrap(Files.readAllBytes(bodiesFile));
        bodies = new byte[content.getInt()][];
        values = new Object[bodies.length];
        for (int i = 0; i < bodies.length; i++) {
            bodies[i] = new byte[content.getInt()];
            content.get(bodies[i]);
            values[i] = decoded(bodies[i]);
        }
    }

    public static void main(String[] args) throws IOException {
        AvroBench bench = new AvroBench(Path.of(args[0]), Path.of(args[1]));
        System.out.println("{\"ready\":\"" + System.getProperty("java.version") + "\"}");
        Scanner lines = new Scanner(System.in, "UTF-8");
        while (lines.hasNextLine()) {
            String[] words = lines.nextLine().split(" ", 2);
            if (words[0].equals("write")) {
                bench.write(Path.of(words[1]));
                System.out.println("{\"count\":" + bench.bodies.length + "}");
            } else {
                System.out.println(bench.timed(words[0].equals("decode"), Integer.parseInt(words[1])));
            }
            System.out.flush();
        }
    }

    private String timed(boolean isDecode, int rounds) throws IOException {
        System.gc();
        long count = 0;
        long bytes = 0;
        long began = System.nanoTime();
        for (int round = 0; round < rounds; round++) {
            for (int i = 0; i < bodies.length; i++) {
                if (isDecode) {
                    last = decoded(bodies[i]);
                    bytes += bodies[i].length;
                } else {
                    byte[] body = encoded(values[i]);
                    last = body;
                    bytes += body.length;
                }
                count++;
            }
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        return "{\"seconds\":" + seconds + ",\"count\":" + count + ",\"bytes\":" + bytes + "}";
    }

    private Object decoded(byte[] body) throws IOException {
        decoder = DecoderFactory.get().binaryDecoder(body, decoder);
        return reader.read(null, decoder);
    }

    private byte[] encoded(Object value) throws IOException {
        stream.reset();
        encoder = EncoderFactory.get().binaryEncoder(stream, encoder);
        writer.write(value, encoder);
        encoder.flush();
        return stream.toByteArray();
    }

    private void write(Path path) throws IOException {
        try (DataOutputStream output = new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(path)))) {
            output.writeInt(bodies.length);
            for (Object value : values) {
                byte[] body = encoded(value);
                output.writeInt(body.length);
                output.write(body);
            }
        }
    }
}
