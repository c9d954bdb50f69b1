import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.StatementSet;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;
import org.apache.flink.util.CloseableIterator;

/**
 * Flink's own SQL in one warm process. Reads lines, answers lines of JSON.
 *
 * <p>"run FILE": runs the statements of a file, between lines of "----", in a new environment; the answer has the rows of
 * the last one, as they are when the input has ended. "seconds FILE": the same, but its INSERTs are one job, which is
 * awaited; the answer has the wall seconds of this job.
 */
public class FlinkSql {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        out.println(JSON.writeValueAsString(Map.of("ready", true)));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", 2);
            Map<String, Object> answer = new HashMap<>();
            try {
                List<String> statements = statements(Path.of(words[1]));
                if (words[0].equals("run")) {
                    run(statements, answer);
                } else {
                    time(statements, answer);
                }
            } catch (Throwable error) {
                error.printStackTrace();
                answer.put("failed", reasons(error));
            }
            out.println(JSON.writeValueAsString(answer));
        }
    }

    private static List<String> statements(Path file) throws Exception {
        List<String> found = new ArrayList<>();
        for (String text : Files.readString(file).split("(?m)^----$")) {
            if (!text.isBlank()) {
                found.add(text.strip());
            }
        }
        return found;
    }

    /** Statements that only the client of SQL knows: SET 'key' = 'value'. */
    private static boolean isSetting(TableEnvironment environment, String statement) {
        String[] parts = statement.split("'");
        if (parts.length != 4 || !parts[0].strip().equalsIgnoreCase("SET")) {
            return false;
        }
        environment.getConfig().set(parts[1], parts[3]);
        return true;
    }

    private static TableEnvironment environment() {
        TableEnvironment made = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
        made.getConfig().set("table.local-time-zone", "UTC");
        made.getConfig().set("parallelism.default", System.getProperty("parallelism", "1"));
        return made;
    }

    private static void run(List<String> statements, Map<String, Object> answer) throws Exception {
        TableEnvironment environment = environment();
        TableResult result = null;
        for (String each : statements) {
            if (!isSetting(environment, each)) {
                result = environment.executeSql(each);
            }
        }
        Map<List<Object>, Integer> rows = new HashMap<>();
        try (CloseableIterator<Row> found = result.collect()) {
            while (found.hasNext()) {
                Row row = found.next();
                boolean isGone = row.getKind() == RowKind.DELETE || row.getKind() == RowKind.UPDATE_BEFORE;
                rows.merge(values(row), isGone ? -1 : 1, Integer::sum);
            }
        }
        List<List<Object>> left = new ArrayList<>();
        rows.forEach((row, count) -> {
            for (int i = 0; i < count; i++) {
                left.add(row);
            }
        });
        answer.put("types", result.getResolvedSchema().getColumnDataTypes().stream().map(Object::toString).toList());
        answer.put("rows", left);
    }

    private static void time(List<String> statements, Map<String, Object> answer) throws Exception {
        TableEnvironment environment = environment();
        StatementSet inserts = environment.createStatementSet();
        for (String each : statements) {
            if (each.regionMatches(true, 0, "INSERT", 0, 6)) {
                inserts.addInsertSql(each);
            } else if (!isSetting(environment, each)) {
                environment.executeSql(each);
            }
        }
        long began = System.nanoTime();
        inserts.execute().await();
        answer.put("seconds", (System.nanoTime() - began) / 1e9);
    }

    private static List<Object> values(Row row) {
        List<Object> found = new ArrayList<>();
        for (int i = 0; i < row.getArity(); i++) {
            Object value = row.getField(i);
            boolean isPlain = value == null || value instanceof Boolean || value instanceof Integer;
            isPlain |= value instanceof Long || value instanceof Short || value instanceof Byte;
            if (value instanceof BigDecimal) {
                found.add(((BigDecimal) value).toPlainString());
            } else {
                found.add(isPlain ? value : value.toString());
            }
        }
        return found;
    }

    private static String reasons(Throwable error) {
        StringBuilder found = new StringBuilder();
        for (Throwable each = error; each != null; each = each.getCause()) {
            found.append(each).append('\n');
        }
        return found.toString();
    }
}
