import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.calcite.rel.RelNode;
import org.apache.calcite.rel.core.Calc;
import org.apache.calcite.rex.RexNode;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.StatementSet;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.table.api.internal.TableEnvironmentImpl;
import org.apache.flink.table.data.ArrayData;
import org.apache.flink.table.data.DecimalData;
import org.apache.flink.table.data.GenericArrayData;
import org.apache.flink.table.data.GenericMapData;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.MapData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.planner.calcite.FlinkTypeFactory;
import org.apache.flink.table.planner.codegen.CodeGeneratorContext;
import org.apache.flink.table.planner.codegen.ConstantCodeGeneratorContext;
import org.apache.flink.table.planner.codegen.ExprCodeGenerator;
import org.apache.flink.table.planner.codegen.FunctionCodeGenerator;
import org.apache.flink.table.planner.codegen.GeneratedExpression;
import org.apache.flink.table.planner.delegation.PlannerBase;
import org.apache.flink.table.planner.operations.PlannerQueryOperation;
import org.apache.flink.table.types.logical.DecimalType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;
import org.apache.flink.util.CloseableIterator;
import scala.Option;
import scala.collection.JavaConverters;

/**
 * Flink's own SQL in one warm process. Reads lines, answers lines of JSON.
 *
 * <p>"run FILE": runs the statements of a file, between lines of "----", in a new environment; the answer has the rows of
 * the last one, as they are when the input has ended. "seconds FILE": the same, but its INSERTs are one job, which is
 * awaited; the answer has the wall seconds of this job. "values FILE": the first statements, SET and CREATE TABLE t, are
 * followed by the rows of t, a list of lists, and by expressions over them. Each is planned and generated as a job would
 * do it, but called without one, row by row: a row that fails does not hide the others. "plan FILE": says which of the
 * queries behind the first statements are refused, and why.
 */
public class FlinkSql {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int PARALLELISM = Integer.getInteger("parallelism", 1);
    private static MiniCluster cluster;

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
                } else if (words[0].equals("values")) {
                    evaluate(statements, answer);
                } else if (words[0].equals("plan")) {
                    plan(statements, answer);
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
        return environment(new Configuration());
    }

    private static TableEnvironment environment(Configuration configuration) {
        TableEnvironment made =
                TableEnvironment.create(
                        EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(configuration).build());
        made.getConfig().set("table.local-time-zone", "UTC");
        made.getConfig().set("parallelism.default", "" + PARALLELISM);
        return made;
    }

    /** Where jobs are: one cluster for all, because it takes longer to start than most of them. */
    private static Configuration cluster() throws Exception {
        if (cluster == null) {
            Configuration ports = new Configuration();
            ports.setString("rest.bind-port", "0");
            cluster =
                    new MiniCluster(
                            new MiniClusterConfiguration.Builder()
                                    .setConfiguration(ports)
                                    .setNumTaskManagers(1)
                                    .setNumSlotsPerTaskManager(PARALLELISM)
                                    .build());
            cluster.start();
        }
        Configuration found = new Configuration();
        found.setString("execution.target", "remote");
        found.setString("rest.address", "localhost");
        found.setString("rest.port", "" + cluster.getRestAddress().get().getPort());
        found.setString("client.retry-period", "20 ms");
        return found;
    }

    private static void run(List<String> statements, Map<String, Object> answer) throws Exception {
        TableEnvironment environment = environment(cluster());
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

    /** Why queries are refused; null for one that can be planned. */
    private static void plan(List<String> statements, Map<String, Object> answer) {
        TableEnvironment environment = environment();
        List<Object> found = new ArrayList<>();
        for (String each : statements) {
            try {
                if (each.startsWith("SELECT")) {
                    environment.explainSql(each);
                    found.add(null);
                } else if (!isSetting(environment, each)) {
                    environment.executeSql(each);
                }
            } catch (Throwable error) {
                found.add(reasons(error));
            }
        }
        answer.put("refused", found);
    }

    private static void evaluate(List<String> statements, Map<String, Object> answer) throws Exception {
        TableEnvironment environment = environment();
        int at = 0;
        for (; !statements.get(at).startsWith("["); at++) {
            if (!isSetting(environment, statements.get(at))) {
                environment.executeSql(statements.get(at));
            }
        }
        PlannerBase planner = (PlannerBase) ((TableEnvironmentImpl) environment).getPlanner();
        RelNode all = tree(environment.sqlQuery("SELECT * FROM t"));
        RowType columns = FlinkTypeFactory.toLogicalRowType(all.getRowType());
        List<RowData> rows = new ArrayList<>();
        for (JsonNode each : JSON.readTree(statements.get(at))) {
            rows.add((RowData) internal(each, columns));
        }
        List<Object> found = new ArrayList<>();
        for (String each : statements.subList(at + 1, statements.size())) {
            try {
                found.add(column(environment, planner, each, rows));
            } catch (Throwable error) {
                found.add(Map.of("failed", reasons(error)));
            }
        }
        answer.put("columns", found);
    }

    private static RelNode tree(Table query) {
        return ((PlannerQueryOperation) query.getQueryOperation()).getCalciteTree();
    }

    /** The type of an expression, and its value for each row. */
    private static Map<String, Object> column(
            TableEnvironment environment, PlannerBase planner, String expression, List<RowData> rows) throws Exception {
        Table table = environment.sqlQuery("SELECT " + expression + " FROM t");
        Calc plan = (Calc) planner.optimize(tree(table));
        MapFunction<RowData, RowData> function = generated(planner, plan);
        LogicalType type = FlinkTypeFactory.toLogicalRowType(plan.getRowType()).getTypeAt(0);
        RowData.FieldGetter getter = RowData.createFieldGetter(type, 0);
        List<Object> values = new ArrayList<>();
        for (RowData each : rows) {
            try {
                values.add(plain(getter.getFieldOrNull(function.map(each)), type));
            } catch (Throwable error) {
                values.add(Map.of("failed", reasons(error)));
            }
        }
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("type", table.getResolvedSchema().getColumnDataTypes().get(0).toString());
        found.put("values", values);
        return found;
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static MapFunction<RowData, RowData> generated(PlannerBase planner, Calc calc) throws Exception {
        ClassLoader loader = FlinkSql.class.getClassLoader();
        RowType columns = FlinkTypeFactory.toLogicalRowType(calc.getInput().getRowType());
        RowType result = FlinkTypeFactory.toLogicalRowType(calc.getRowType());
        CodeGeneratorContext context = new ConstantCodeGeneratorContext(planner.getTableConfig(), loader);
        ExprCodeGenerator generator =
                new ExprCodeGenerator(context, false).bindInput(columns, "in1", Option.empty());
        List<GeneratedExpression> expressions = new ArrayList<>();
        for (RexNode each : calc.getProgram().split().left) {
            expressions.add(generator.generateExpression(each));
        }
        GeneratedExpression row =
                generator.generateResultExpression(
                        JavaConverters.asScalaBuffer(expressions).toSeq(), result, GenericRowData.class, "out",
                        Option.empty(), true, false);
        MapFunction<RowData, RowData> function =
                FunctionCodeGenerator.<MapFunction>generateFunction(
                                context, "Column", MapFunction.class,
                                row.code() + "\nreturn " + row.resultTerm() + ";", result, columns, "in1",
                                Option.empty(), Option.empty(), "collector", "context")
                        .newInstance(loader);
        ((RichMapFunction<RowData, RowData>) function).open(new OpenContext() {});
        return function;
    }

    /** A value as Flink's functions take it: times are microseconds, days or months, bytes are hexadecimal. */
    private static Object internal(JsonNode value, LogicalType type) {
        if (value.isNull()) {
            return null;
        }
        switch (type.getTypeRoot()) {
            case CHAR:
            case VARCHAR:
                return StringData.fromString(value.textValue());
            case BOOLEAN:
                return value.booleanValue();
            case BINARY:
            case VARBINARY:
                return HexFormat.of().parseHex(value.textValue());
            case DECIMAL:
                DecimalType decimal = (DecimalType) type;
                return DecimalData.fromBigDecimal(
                        new BigDecimal(value.textValue()), decimal.getPrecision(), decimal.getScale());
            case TINYINT:
                return (byte) value.intValue();
            case SMALLINT:
                return (short) value.intValue();
            case INTEGER:
            case DATE:
                return value.intValue();
            case TIME_WITHOUT_TIME_ZONE:
                return (int) (value.longValue() / 1000);
            case BIGINT:
                return value.longValue();
            case FLOAT:
                return Float.parseFloat(value.asText());
            case DOUBLE:
                return Double.parseDouble(value.asText());
            case TIMESTAMP_WITHOUT_TIME_ZONE:
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                long micros = value.longValue();
                return TimestampData.fromEpochMillis(
                        Math.floorDiv(micros, 1000L), (int) Math.floorMod(micros, 1000L) * 1000);
            case ARRAY:
                Object[] elements = new Object[value.size()];
                for (int i = 0; i < elements.length; i++) {
                    elements[i] = internal(value.get(i), type.getChildren().get(0));
                }
                return new GenericArrayData(elements);
            case MAP:
                Map<Object, Object> map = new LinkedHashMap<>();
                for (JsonNode each : value) {
                    map.put(
                            internal(each.get(0), type.getChildren().get(0)),
                            internal(each.get(1), type.getChildren().get(1)));
                }
                return new GenericMapData(map);
            case ROW:
                GenericRowData row = new GenericRowData(value.size());
                for (int i = 0; i < value.size(); i++) {
                    row.setField(i, internal(value.get(i), type.getChildren().get(i)));
                }
                return row;
            default:
                throw new IllegalArgumentException(type.toString());
        }
    }

    /** The inverse of `internal`. */
    private static Object plain(Object value, LogicalType type) {
        if (value == null) {
            return null;
        }
        switch (type.getTypeRoot()) {
            case BINARY:
            case VARBINARY:
                return HexFormat.of().formatHex((byte[]) value);
            case DECIMAL:
                return ((DecimalData) value).toBigDecimal().toPlainString();
            case TIME_WITHOUT_TIME_ZONE:
                return (int) value * 1000L;
            case INTERVAL_DAY_TIME:
                return (long) value * 1000L;
            case TIMESTAMP_WITHOUT_TIME_ZONE:
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                TimestampData time = (TimestampData) value;
                return time.getMillisecond() * 1000L + time.getNanoOfMillisecond() / 1000;
            case ARRAY:
                return list((ArrayData) value, type.getChildren().get(0));
            case MAP:
                MapData map = (MapData) value;
                List<Object> keys = list(map.keyArray(), type.getChildren().get(0));
                List<Object> values = list(map.valueArray(), type.getChildren().get(1));
                List<Object> pairs = new ArrayList<>();
                for (int i = 0; i < keys.size(); i++) {
                    List<Object> pair = new ArrayList<>();
                    pair.add(keys.get(i));
                    pair.add(values.get(i));
                    pairs.add(pair);
                }
                return pairs;
            case ROW:
                List<Object> fields = new ArrayList<>();
                for (int i = 0; i < type.getChildren().size(); i++) {
                    LogicalType field = type.getChildren().get(i);
                    fields.add(plain(RowData.createFieldGetter(field, i).getFieldOrNull((RowData) value), field));
                }
                return fields;
            default:
                return value instanceof Number || value instanceof Boolean ? number(value) : value.toString();
        }
    }

    /** JSON has no NaN. */
    private static Object number(Object value) {
        return value instanceof Double || value instanceof Float ? value.toString() : value;
    }

    private static List<Object> list(ArrayData array, LogicalType type) {
        ArrayData.ElementGetter getter = ArrayData.createElementGetter(type);
        List<Object> found = new ArrayList<>();
        for (int i = 0; i < array.size(); i++) {
            found.add(plain(getter.getElementOrNull(array, i), type));
        }
        return found;
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
