// Kafka's command-line tools, many commands in one process: `java Tools.java` reads a JSON list from standard input, of
// lists [CLASS, ARGUMENT …], and prints a JSON list of {"status": …, "out": …} as its last line.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

public class Tools {
    static final ByteArrayOutputStream SAID = new ByteArrayOutputStream();

    // Ends a tool, not the process.
    static class Ended extends Error {
        final int status;

        Ended(int status) { this.status = status; }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        PrintStream said = new PrintStream(SAID, true, StandardCharsets.UTF_8);
        System.setOut(said);  // once: Scala's console keeps what it finds
        System.setErr(said);
        Exit.setExitProcedure((status, message) -> { throw new Ended(status); });
        ObjectMapper json = new ObjectMapper();
        List<Map<String, Object>> results = new ArrayList<>();
        for (JsonNode command : json.readTree(System.in)) {
            List<String> words = new ArrayList<>();
            command.forEach(word -> words.add(word.asText()));
            results.add(run(words.get(0), words.subList(1, words.size()).toArray(new String[0])));
        }
        out.println(json.writeValueAsString(results));
        out.flush();
        Runtime.getRuntime().halt(0);  // some tools leave threads behind
    }

    static Map<String, Object> run(String name, String[] arguments) throws Exception {
        SAID.reset();
        int status = 0;
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Ended ended)) {
                throw error;
            }
            status = ended.status;
        }
        return Map.of("status", status, "out", SAID.toString(StandardCharsets.UTF_8));
    }
}
